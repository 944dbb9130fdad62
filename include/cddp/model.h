/** @file
 *  model.h - runs a trained model: libcddp-model, a library of its own on top of libcddp.
 *
 *      cddp_model_open()        a run folder, or a safetensors file with a train.conf
 *      cddp_model_get_input(), cddp_model_get_output()   names, types and shapes
 *      cddp_model_forward()     a batch in, a batch out
 *      cddp_model_generate()    text, from a model of tokens
 *      cddp_model_close()
 *
 *  Compile and link with `pkg-config --cflags --libs cddp-model`, not cddp, which has none of these
 *  functions. In a clone that is built but not installed: -I include -L build/src -lcddp-model
 *  -lcddp -Wl,-rpath,$PWD/build/src. A handle belongs to one thread at a time: a call
 *  while another thread is in one returns CDDP_ERR_BUSY and does nothing. Several threads may use
 *  several handles at the same time. No group is needed, and no variable of a launcher is read, so
 *  a rank of a job may open a model, too. Messages go only to the log (process.h). A forked child
 *  cannot use its parent's models.
 *
 *  Every call can return CDDP_ERR_ARGUMENT (a handle that is NULL, an argument outside its range),
 *  CDDP_ERR_CLOSED (a closed handle), CDDP_ERR_STATE (in a forked child, or in a function that a
 *  call on this model has called) and CDDP_ERR_NO_MEMORY. cddp_last_error() has the text, which
 *  names the file and the key of train.conf.
 */
#ifndef CDDP_MODEL_H
#define CDDP_MODEL_H

#include <cddp/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A model with its weights, ready to compute. */
typedef struct cddp_model cddp_model;

/** How a model is opened; zero means default. Texts are borrowed for the call. */
typedef struct cddp_model_options {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** A train.conf. NULL: the run folder's, or only config_text. */
    const char *config_path;
    /** The text of a train.conf. Its keys replace those of the file. NULL: none. */
    const char *config_text;
    /** "cpu", "cuda" or "cuda:2"; NULL: "cpu". */
    const char *device;
    /** How many threads compute on the CPU; 0: $CDDP_THREADS, else 1. */
    uint32_t threads;
    /** Larger batches are computed in pieces of at most this many samples. The model keeps memory
     *  for one piece. 0: 64 images, or 4 sequences of tokens. */
    uint32_t max_batch;
    /** For data.type = "idx" and "npy", where train.conf does not have the size of the samples:
     *  channels, height and width. All 0: read from the files data.test_images or
     *  data.train_images, or from the first of data.train. */
    uint32_t image[3];
    /** Images are floats that the caller has normalised as train.conf says. False: images are bytes
     *  (0 to 255), and the model normalises them. Only for models that take images. */
    bool normalised;
    /** The outputs are probabilities: the softmax (for binary_cross_entropy the sigmoid) of the
     *  last layer's outputs. False: the last layer's outputs. */
    bool probabilities;
    /** 0. */
    uint16_t reserved;
} cddp_model_options;
CDDP_NO_TAIL(cddp_model_options, reserved);
/** The defaults. */
#define CDDP_MODEL_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(cddp_model_options), NULL, NULL, NULL, 0, 0, {0, 0, 0}, false, false, 0             \
    }

/** Open a model for inference.
 *  Collective: no.
 *  @param path     A run folder (runs/NAME): its newest complete checkpoint is used, and its
 *                  train.conf if the options name none. Or a checkpoint's folder, or a safetensors
 *                  file, each with a train.conf in the options. For model.type = "gpt2" also files
 *                  and folders of Hugging Face's and llm.c's formats.
 *  @param options  NULL: the defaults.
 *  @param out      Release with cddp_model_close().
 *  @return CDDP_OK; CDDP_ERR_NOT_FOUND (no such file, or a run without a checkpoint);
 *          CDDP_ERR_CONFIG (train.conf); CDDP_ERR_FORMAT (a file is damaged, or of another model:
 *          the text names the tensor); CDDP_ERR_IO; CDDP_ERR_UNAVAILABLE, CDDP_ERR_DEVICE (the
 *          device). */
CDDP_CHECKED cddp_status cddp_model_open(const char *path, const cddp_model_options *options,
                                         cddp_model **out);
/** Close @p model, which may be NULL, and free its memory.
 *  Collective: no. */
CDDP_API void cddp_model_close(cddp_model *model);

/** In cddp_model_value.shape: the number of samples, which each call chooses. */
#define CDDP_MODEL_BATCH (-1)

/** An input or an output of a model. Texts are the model's, valid until it is closed. */
typedef struct cddp_model_value {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** Of an input: "images", "numbers", "tokens" or "latent". Of an output: "logits",
     *  "probabilities", "targets" or "images". */
    const char *name;
    /** A sentence: what the numbers mean. */
    const char *meaning;
    /** Type of its elements. */
    cddp_type type;
    /** How many elements of shape are used. */
    int32_t dims;
    /** The first is CDDP_MODEL_BATCH. Images and numbers: then channels, height, width (of a
     *  table: 1, 1, and how many numbers a row has). Tokens: then the context, the most tokens that
     *  a sequence may have; shorter ones may be given. */
    int64_t shape[CDDP_MAX_DIMS];
    /** For each channel of images (0, 1 elsewhere): a byte x enters the model as
     *  (x / 255 - mean) / std. With `normalised`, the caller has done that. */
    float mean[4];
    /** See mean. */
    float std[4];
} cddp_model_value;
CDDP_NO_TAIL(cddp_model_value, std);
/** Empty. */
#define CDDP_MODEL_VALUE_INIT                                                                      \
    {                                                                                              \
        sizeof(cddp_model_value), NULL, NULL, (cddp_type)0, 0, {0}, {0},                           \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/** How many inputs the model has (every model of today has one); 0: not a model. Any thread.
 *  Collective: no. */
CDDP_API size_t cddp_model_inputs(const cddp_model *model);
/** How many outputs the model has (every model of today has one); 0: not a model. Any thread.
 *  Collective: no. */
CDDP_API size_t cddp_model_outputs(const cddp_model *model);
/** Describe input @p index. Any thread.
 *  Collective: no. */
CDDP_CHECKED cddp_status cddp_model_get_input(const cddp_model *model, size_t index,
                                              cddp_model_value *out);
/** Describe output @p index. Any thread.
 *  Collective: no. */
CDDP_CHECKED cddp_status cddp_model_get_output(const cddp_model *model, size_t index,
                                               cddp_model_value *out);

/** What a model is. Texts are the model's, valid until it is closed. */
typedef struct cddp_model_info {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** The checkpoint or file that the weights came from. */
    const char *path;
    /** model.type of train.conf. */
    const char *type;
    /** "cpu" or "cuda". */
    const char *device;
    /** The step at which the checkpoint was written; 0: not a checkpoint. */
    uint64_t step;
    /** How many values the parameters have. */
    uint64_t parameters;
    /** Classes, or tokens of the vocabulary; 0: the outputs are images. */
    uint64_t classes;
    /** As in the options, with the default filled in. */
    uint32_t max_batch;
    /** 1: cddp_model_generate() works. */
    uint32_t writes_text;
} cddp_model_info;
CDDP_NO_TAIL(cddp_model_info, writes_text);
/** Empty. */
#define CDDP_MODEL_INFO_INIT                                                                       \
    {                                                                                              \
        sizeof(cddp_model_info), NULL, NULL, NULL, 0, 0, 0, 0, 0                                   \
    }
/** Describe the model. Any thread.
 *  Collective: no. */
CDDP_CHECKED cddp_status cddp_model_get_info(const cddp_model *model, cddp_model_info *out);

/** Compute a batch: what cddp-train's evaluation computes for these samples. Returns when it is
 *  done.
 *  Collective: no.
 *  @param inputs        One tensor for each input, in order, with that type and shape; the first
 *                       number of the shape is the number of samples, from 0. Sequences of tokens
 *                       may be shorter than the context, but all of one length. The data are in
 *                       CPU memory and only read. A name may be NULL.
 *  @param outputs       One for each output: type, shape, and where to write, in CPU memory. After
 *                       an error, the contents are undefined. The other fields are 0.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT (number, name, type or shape is not the model's, an output's
 *          grad is not NULL, or a token is outside the vocabulary); CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddp_model_forward(cddp_model *model, const cddp_tensor *inputs,
                                            size_t input_count, const cddp_param *outputs,
                                            size_t output_count);

/** Make one sample of the input "images" from a JPEG or PNG file, as cddp-train's evaluation of a
 *  folder of images does: the shorter side is resized, and the middle is cut out. For other data,
 *  the image is resized to the model's size. A model of one channel gets the brightness.
 *  Collective: no.
 *  @param out    channels x height x width bytes, also for a model opened with `normalised`.
 *  @param bytes  The size of @p out, exactly as many bytes.
 *  @return CDDP_OK; CDDP_ERR_NOT_FOUND, CDDP_ERR_IO; CDDP_ERR_FORMAT (damaged, or neither JPEG nor
 *          PNG); CDDP_ERR_UNAVAILABLE (the build cannot read such files; or the model takes no
 *          images of 1 or 3 channels). */
CDDP_CHECKED cddp_status cddp_model_read_image(cddp_model *model, const char *path, uint8_t *out,
                                               size_t bytes);

/** Receives text as it is written: @p bytes bytes of whole UTF-8 characters, then a NUL.
 *  May call: anything except calls on this model.
 *  @return CDDP_OK; any other status ends the text, and cddp_model_generate() returns it. */
typedef cddp_status (*cddp_text_fn)(void *state, const char *piece, size_t bytes);

/** How text is written; zero means default. */
typedef struct cddp_generate_options {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** Logits are divided by it before the softmax. 0: always take the most likely token. */
    double temperature;
    /** Seed of the random numbers. The same seed and model give the same text. */
    uint64_t seed;
    /** The most tokens to write; the token that ends a text ends it sooner. 0:
     *  train.generate_tokens of train.conf. */
    uint32_t max_tokens;
    /** Draw only from this many of the most likely tokens. 0: from all. */
    uint32_t top_k;
} cddp_generate_options;
CDDP_NO_TAIL(cddp_generate_options, top_k);
/** The defaults. */
#define CDDP_GENERATE_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(cddp_generate_options), 0, 0, 0, 0                                                  \
    }

/** Continue @p prompt with a model of tokens.
 *  Collective: no.
 *  @param prompt   Text; "" begins a new one. Without data.vocabulary or data.type = "text", texts
 *                  are numbers of tokens ("15 27 99"), here and in pieces.
 *  @param options  NULL: the defaults.
 *  @param fn       Gets the continuation, without the prompt, piece by piece. U+FFFD stands for
 *                  bytes that are not UTF-8 and for control characters but tab and newline.
 *  @param state    Passed to @p fn.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: the model is not of tokens; CDDP_ERR_CONFIG: a token of
 *          the prompt is outside the vocabulary; CDDP_ERR_DEVICE; or what @p fn returned. */
CDDP_CHECKED cddp_status cddp_model_generate(cddp_model *model, const char *prompt,
                                             const cddp_generate_options *options, cddp_text_fn fn,
                                             void *state);

#ifdef __cplusplus
}
#endif
#endif
