/* schema.c - owns the table of all keys of train.conf; schema_layers.c has those of a layer. */
#include "train/config/schema.h"

#include "base/choices.h"
#include "data/normalization.h"
#include "nn/model.h"
#include "optim/optim.h"
#include "parallel/pipeline/pipeline_schedule.h"

#define BIG 9.0e18 /* below INT64_MAX, exact enough as a bound */
#define GIB 1073741824.0
#define KEY(member) #member, offsetof(struct cddpi_config, member)
#define CHOICE(id, word) {id, word},
#define CHOICES(MAP) .choices = ((const struct cddpi_choice[]){MAP(CHOICE){0, NULL}})
#define LIST(...) ((const int[]){__VA_ARGS__, CDDPI_NO_CHOICE})
/* The key means something only where @p member is one of these choices ... */
#define ONLY(member, ...)                                                                          \
    .of = offsetof(struct cddpi_config, member), .of_choices = LIST(__VA_ARGS__)
/* ... and with these of data.type it must be given. */
#define NEEDED(...) .needed = LIST(__VA_ARGS__)
#define IDX ONLY(data.type, CDDPI_DATA_IDX)
#define IMAGES ONLY(data.type, CDDPI_DATA_IDX, CDDPI_DATA_SYNTHETIC)
#define FOLDERS ONLY(data.type, CDDPI_DATA_IMAGE_FOLDER)
#define ALL_IMAGES ONLY(data.type, CDDPI_DATA_IDX, CDDPI_DATA_SYNTHETIC, CDDPI_DATA_IMAGE_FOLDER)
#define FILES                                                                                      \
    ONLY(data.type, CDDPI_DATA_TOKENS, CDDPI_DATA_TEXT, CDDPI_DATA_IMAGE_FOLDER, CDDPI_DATA_NPY,   \
         CDDPI_DATA_CSV)
#define NPY ONLY(data.type, CDDPI_DATA_NPY)
#define CSV ONLY(data.type, CDDPI_DATA_CSV)
#define TOKENS ONLY(data.type, CDDPI_DATA_TOKENS, CDDPI_DATA_TEXT, CDDPI_DATA_SYNTHETIC)
#define WORDS ONLY(data.type, CDDPI_DATA_TOKENS, CDDPI_DATA_TEXT)
#define GPT2 ONLY(model.type, CDDPI_MODEL_GPT2)
#define DCGAN ONLY(model.type, CDDPI_MODEL_DCGAN)
#define RESNETS                                                                                    \
    CDDPI_MODEL_RESNET18, CDDPI_MODEL_RESNET20, CDDPI_MODEL_RESNET34, CDDPI_MODEL_RESNET50
#define SGD ONLY(optimizer.type, CDDPI_OPTIM_SGD)
#define ADAMW ONLY(optimizer.type, CDDPI_OPTIM_ADAMW)
#define MODEL_PARALLEL ONLY(parallel.type, CDDPI_PARALLEL_MODEL)
#define FALLING                                                                                    \
    ONLY(optimizer.schedule.type, CDDPI_SCHEDULE_LINEAR, CDDPI_SCHEDULE_COSINE, CDDPI_SCHEDULE_WSD)
#define IN_STEPS ONLY(optimizer.schedule.type, CDDPI_SCHEDULE_STEP)
#define WSD ONLY(optimizer.schedule.type, CDDPI_SCHEDULE_WSD)

const struct cddpi_key cddpi_config_keys[] = {
    {KEY(model.type), CDDPI_KEY_ENUM, "\"mlp\"", CHOICES(CDDPI_MODEL_KIND_MAP),
     .text = "The network: a preset, or *layers* for those that *model.layers* lists. dcgan: two "
             "networks, see GENERATED IMAGES."},
    {KEY(model.hidden), CDDPI_KEY_INTS, "[512, 512]", 1, 1 << 20,
     ONLY(model.type, CDDPI_MODEL_MLP, CDDPI_MODEL_LSTM_LM),
     .text = "mlp: widths of the hidden layers. lstm_lm: those of the LSTM layers."},
    {KEY(model.dropout), CDDPI_KEY_REAL, "0.0", 0, 0.999,
     ONLY(model.type, CDDPI_MODEL_MLP, CDDPI_MODEL_CNN, CDDPI_MODEL_GPT2, CDDPI_MODEL_ALEXNET,
          CDDPI_MODEL_VGG11, CDDPI_MODEL_LSTM_LM),
     .text = "mlp, cnn: probability that an output of a hidden layer is zeroed in training; "
             "alexnet, vgg11: of the first two of the three linear layers. gpt2: of the "
             "embedding's outputs and of what attention and perceptron of a block put out; "
             "probabilities of attention are never dropped. lstm_lm: of the embedding's outputs "
             "and of those of each LSTM layer."},
    {KEY(model.sync_batch_norm), CDDPI_KEY_BOOL, "false", ONLY(model.type, RESNETS),
     .text = "resnet18 to resnet50: batch normalisation takes its statistics over all ranks."},
    {KEY(model.size), CDDPI_KEY_TEXT, "\"\"", GPT2,
     .text = "gpt2: *124M*, *350M*, *774M* or *1558M*: what *blocks*, *heads* and *embed* are "
             "where they are 0; empty: each is given."},
    {KEY(model.blocks), CDDPI_KEY_INT, "0", 0, 256, GPT2,
     .text = "gpt2: number of blocks, each of attention and a perceptron; 0: that of "
             "*model.size*."},
    {KEY(model.heads), CDDPI_KEY_INT, "0", 0, 1024, GPT2,
     .text = "gpt2: heads of attention, which divide *model.embed*; 0: those of *model.size*."},
    {KEY(model.embed), CDDPI_KEY_INT, "0", 0, 1 << 16,
     ONLY(model.type, CDDPI_MODEL_GPT2, CDDPI_MODEL_LSTM_LM),
     .text = "gpt2: features of a token; 0: those of *model.size*. lstm_lm: likewise; 0: as many "
             "as the last of *model.hidden*."},
    {KEY(model.recompute), CDDPI_KEY_BOOL, "false", ONLY(model.type, CDDPI_MODEL_GPT2, RESNETS),
     .text =
         "gpt2, resnet18 to resnet50: keep only what goes into each block, and run it once more "
         "before its backward: less memory, more work, the same results. *cddp-train "
         "--dry-run* says how much."},
    {KEY(model.tied), CDDPI_KEY_BOOL, "false", ONLY(model.type, CDDPI_MODEL_LSTM_LM),
     .text = "lstm_lm: the embedding's table is the weight of the last layer, too, for which "
             "*model.embed* must be the last of *model.hidden*."},
    {KEY(model.layers), CDDPI_KEY_LAYERS, "()", ONLY(model.type, CDDPI_MODEL_LAYERS),
     .text = "The layers, one group each, when *model.type* is *layers*."},
    {KEY(model.context), CDDPI_KEY_INT, "1024", 1, 1 << 20, TOKENS,
     .text = "tokens, text: how many tokens a sample has, and a prediction looks back on."},
    {KEY(model.vocab), CDDPI_KEY_INT, "0", 0, 1 << 22, TOKENS,
     .text = "tokens, text: number of tokens that the model knows, at least those of the data; 0: "
             "as many."},
    {KEY(model.loss), CDDPI_KEY_ENUM, "\"cross_entropy\"", CHOICES(CDDPI_LOSS_MAP),
     .text =
         "What is minimised: softmax cross-entropy; or, to one-hot targets, the mean square "
         "error, or the mean binary cross-entropy of the outputs as logits. With data that have "
         "real targets (npy, csv): *mse*, their mean square error, or *l1*, their mean absolute "
         "error; evaluation then reports the rmse, or the mae, and no accuracy."},
    {KEY(model.weights), CDDPI_KEY_TEXT, "\"\"", .is_path = true,
     .text = "A safetensors file with the initial parameters; empty: drawn from *train.seed*. "
             "gpt2: also Hugging Face's, llm.c's model files and folders with a model.safetensors "
             "or the index of its shards, see *cddp-convert*(1). *blocks*, *heads*, *embed* and "
             "*vocab* are theirs where they are not given; *context* may be shorter than theirs."},

    {KEY(model.latent), CDDPI_KEY_INT, "100", 1, 1 << 16, DCGAN,
     .text = "dcgan: numbers of a latent vector, of which the generator makes an image."},
    {KEY(model.generator_units), CDDPI_KEY_INT, "64", 1, 1024, DCGAN,
     .text = "dcgan: channels of the generator's last layer but one; each one before has twice as "
             "many."},
    {KEY(model.discriminator_units), CDDPI_KEY_INT, "64", 1, 1024, DCGAN,
     .text = "dcgan: channels of the discriminator's first layer; each one behind has twice as "
             "many."},
    {KEY(model.towers), CDDPI_KEY_INT, "1", 1, 2, ONLY(model.type, CDDPI_MODEL_ALEXNET),
     .text = "alexnet: *1*: its two towers are groups of channels of the same layers. *2*: they "
             "are layers of their own, which *parallel.placement* can put on a device each: a1 and "
             "b1 (two convolutions), a3 and b3 (three, of which the first reads both towers), a6, "
             "b6, a7, b7 (linear layers, which read both) and fc8; each tower's normalisation sees "
             "its own channels."},

    {KEY(data.type), CDDPI_KEY_ENUM, "\"idx\"", CHOICES(CDDPI_DATA_TYPE_MAP),
     .text = "The format of the data files: *idx*, images and their classes, plain or gzip'd; "
             "*tokens*, llm.c's .bin files of GPT-2 or Llama 3; *text*, any text, plain or gzip'd; "
             "*synthetic*, no files but random numbers, for benchmarks; *image_folder*, JPEG and "
             "PNG files, a folder a class; *npy*, NumPy's .npy and .npz files; *csv*, tables of "
             "text and numbers. See DATA."},
    {KEY(data.train_images), CDDPI_KEY_TEXT, "\"\"", .is_path = true, IDX, NEEDED(CDDPI_DATA_IDX),
     .text = "idx: images to train on."},
    {KEY(data.train_labels), CDDPI_KEY_TEXT, "\"\"", .is_path = true, IDX, NEEDED(CDDPI_DATA_IDX),
     .text = "idx: their classes."},
    {KEY(data.test_images), CDDPI_KEY_TEXT, "\"\"", .is_path = true, IDX, NEEDED(CDDPI_DATA_IDX),
     .text = "idx: images to evaluate on."},
    {KEY(data.test_labels), CDDPI_KEY_TEXT, "\"\"", .is_path = true, IDX, NEEDED(CDDPI_DATA_IDX),
     .text = "idx: their classes."},
    {KEY(data.classes), CDDPI_KEY_INT, "0", 0, 1 << 16,
     ONLY(data.type, CDDPI_DATA_IDX, CDDPI_DATA_SYNTHETIC, CDDPI_DATA_NPY),
     .text = "idx, npy: number of classes, of idx at most 256: a label beyond it is an error that "
             "names its file and sample; 0: one more than the largest label of the training data. "
             "idx: there is a warning about classes without a sample. synthetic: of images; 0: "
             "10."},
    {KEY(data.samples), CDDPI_KEY_LONG, "1024", 1, 1e9, ONLY(data.type, CDDPI_DATA_SYNTHETIC),
     .text = "synthetic: samples to train on; a tenth as many are evaluated on. A model of tokens "
             "gets sequences of *model.context* tokens out of *model.vocab*, others get images."},
    {KEY(data.image), CDDPI_KEY_INTS, "[1, 28, 28]", 1, 1 << 14,
     ONLY(data.type, CDDPI_DATA_SYNTHETIC),
     .text = "synthetic: channels (at most 4), height and width of images."},
    {KEY(data.train), CDDPI_KEY_TEXTS, "[]", .is_path = true, FILES,
     NEEDED(CDDPI_DATA_TOKENS, CDDPI_DATA_TEXT, CDDPI_DATA_IMAGE_FOLDER, CDDPI_DATA_NPY,
            CDDPI_DATA_CSV),
     .text = "tokens, text, npy, csv: files to train on, a name or pattern (as in *glob*(7)) or a "
             "list of "
             "them; the files of a pattern are taken in the order of their names. image_folder: "
             "the folder that has those of the classes to train on."},
    {KEY(data.test), CDDPI_KEY_TEXTS, "[]", .is_path = true, FILES, NEEDED(CDDPI_DATA_TOKENS),
     .text = "tokens, text, npy, csv: files to evaluate on, likewise. image_folder: the folder of "
             "what to "
             "evaluate on. text, image_folder, npy, csv: without it, *data.test_fraction* of what "
             "*data.train* names."},
    {KEY(data.train_targets), CDDPI_KEY_TEXTS, "[]", .is_path = true, NPY,
     .text = "npy: .npy files with the classes or real targets of the samples in *data.train*, one "
             "for each of its files and in the same order; none where those are .npz archives, "
             "which hold both."},
    {KEY(data.test_targets), CDDPI_KEY_TEXTS, "[]", .is_path = true, NPY,
     .text = "npy: likewise for *data.test*."},
    {KEY(data.npz_inputs), CDDPI_KEY_TEXT, "\"x\"", NPY,
     .text = "npy: the name of the array of samples in an .npz archive."},
    {KEY(data.npz_targets), CDDPI_KEY_TEXT, "\"y\"", NPY,
     .text = "npy: the name of the array of classes or real targets there."},
    {KEY(data.test_fraction), CDDPI_KEY_REAL, "0.1", 1e-6, 0.9,
     ONLY(data.type, CDDPI_DATA_TEXT, CDDPI_DATA_IMAGE_FOLDER, CDDPI_DATA_NPY, CDDPI_DATA_CSV),
     .text =
         "The part that is held back for evaluation, and never trained on, where there is no "
         "*data.test*. text: the end of the tokens. image_folder: of each class this part of "
         "its images, the same in every run whatever its seed. npy, csv: this part of the samples, "
         "likewise."},
    {KEY(data.target), CDDPI_KEY_TEXTS, "[]", CSV, NEEDED(CDDPI_DATA_CSV),
     .text = "csv: the column that the model learns to predict. Its different values are classes, "
             "in the order of integers, else of their bytes. With *model.loss* mse or l1 it holds "
             "real numbers, and several columns can be listed."},
    {KEY(data.features), CDDPI_KEY_TEXTS, "[]", CSV,
     .text = "csv: the columns that the model gets; none: all but those of *data.target* and "
             "*data.ignore*. They keep the order of the file."},
    {KEY(data.ignore), CDDPI_KEY_TEXTS, "[]", CSV,
     .text = "csv: columns that are not used, such as a row's number or name."},
    {KEY(data.categories), CDDPI_KEY_TEXTS, "[]", CSV,
     .text = "csv: columns whose numbers are categories, such as a postal code. A column whose "
             "first value is no number has categories anyway. Each category becomes a number of "
             "its own, 1 or 0, in the order of classes; at most 1000 a column."},
    {KEY(data.delimiter), CDDPI_KEY_TEXT, "\",\"", CSV,
     .text = "csv: what stands between fields: one character, or *tab*."},
    {KEY(data.missing), CDDPI_KEY_ENUM, "\"error\"", CHOICES(CDDPI_DATA_MISSING_MAP), CSV,
     .text = "csv: what a field of *data.features* means that is empty, or without quotes NA, N/A, "
             "NaN, nan, NULL, null or ?: *error*, the run ends with its line; *mean*, it gets the "
             "mean of the rows to train on (a category: how frequent each is). A missing target is "
             "always an error."},
    {KEY(data.normalize), CDDPI_KEY_ENUM, "\"none\"", CHOICES(CDDPI_NORMALIZE_MAP),
     ONLY(data.type, CDDPI_DATA_NPY, CDDPI_DATA_CSV),
     .text = "npy, csv: how each number of a sample is changed: *standard*, to a mean of 0 and a "
             "standard deviation of 1 over the training data; *minmax*, to 0 to 1. npy: samples of "
             "two or more dimensions are changed by channels. csv: categories stay as they are. "
             "Targets are not changed. "
             "Checkpoints keep the statistics (*normalize* in state.json), by which a "
             "run goes on even if its data have changed."},
    {KEY(data.vocabulary), CDDPI_KEY_TEXT, "\"\"", .is_path = true, WORDS,
     .text = "text: the vocabulary file by which text becomes tokens; empty: each byte is a token. "
             "tokens: the one by which they were made, if it is known: it says how many there are, "
             "and what they stand for."},
    {KEY(data.size), CDDPI_KEY_INT, "224", 1, 4096, FOLDERS,
     .text = "image_folder: height and width of what the model gets. In training, a random part of "
             "an image is resized to it, as torchvision's RandomResizedCrop does."},
    {KEY(data.resize), CDDPI_KEY_INT, "0", 0, 8192, FOLDERS,
     .text = "image_folder: in evaluation, an image's shorter side is resized to so many pixels, "
             "and the middle of *data.size* is cut out; 0: an eighth more than it, rounded up (256 "
             "for 224)."},
    {KEY(data.crop_area), CDDPI_KEY_REALS, "[0.08, 1.0]", 1e-6, 1, FOLDERS,
     .text = "image_folder: the smallest and the largest part of an image's area that is cut out "
             "in training; its sides have a ratio of 3:4 to 4:3."},
    {KEY(data.on_error), CDDPI_KEY_ENUM, "\"error\"", CHOICES(CDDPI_DATA_ON_ERROR_MAP), FOLDERS,
     .text = "image_folder: what becomes of a file that is broken or not there: *error*, the run "
             "ends with its name; *skip*, the next file of the data that can be read takes its "
             "place, on every rank and in every run the same, and a warning says how many there "
             "were."},
    {KEY(data.mean), CDDPI_KEY_REALS, "[0.0]", -1e6, 1e6, ALL_IMAGES,
     .text = "images: subtracted from each value (values lie in 0 to 1), one number or one per "
             "channel."},
    {KEY(data.std), CDDPI_KEY_REALS, "[1.0]", 1e-6, 1e6, ALL_IMAGES,
     .text = "images: divides each value afterwards, one number or one per channel."},
    {KEY(data.crop_padding), CDDPI_KEY_INT, "0", 0, 64, IMAGES,
     .text = "idx, synthetic: training images are padded by so many zeros and cropped at random; "
             "0: not."},
    {KEY(data.flip), CDDPI_KEY_BOOL, "false", ALL_IMAGES,
     .text = "images: training images are mirrored with probability 1/2."},
    {KEY(data.threads), CDDPI_KEY_INT, "-1", -1, 64, .local = true,
     .text = "Threads of a rank that prepare batches; 0: the compute thread does it; -1: one "
             "thread if the rank may run on more than one core, else none."},
    {KEY(data.prefetch), CDDPI_KEY_INT, "4", 1, 1024, .local = true,
     .text = "Batches that are kept ready."},
    {KEY(data.order), CDDPI_KEY_ENUM, "\"random\"", CHOICES(CDDPI_DATA_ORDER_MAP),
     .text = "Order of the samples in an epoch; *torch*: PyTorch's for the same seed and epoch."},

    {KEY(train.epochs), CDDPI_KEY_LONG, "1", 1, 1e9, .text = "Passes over the training data."},
    {KEY(train.max_steps), CDDPI_KEY_LONG, "0", 0, BIG,
     .text = "End the run after this step; 0: after the last epoch. The learning rate schedule is "
             "that of all epochs."},
    {KEY(train.batch_size), CDDPI_KEY_LONG, "256", 1, 1 << 24,
     .text = "Samples of a step, of all ranks together; a sample of text is *model.context* "
             "tokens."},
    {KEY(train.accumulate), CDDPI_KEY_LONG, "1", 1, 1 << 24,
     .text = "Each rank computes its share of a step in so many micro-batches, one after the "
             "other, for want of memory: gradients add up, and are exchanged once."},
    {KEY(train.eval_batch_size), CDDPI_KEY_LONG, "1000", 1, 1 << 24,
     .text = "Samples evaluated at a time, of all ranks together; tokens, text: in pieces that are "
             "no larger than a rank's micro-batch in training."},
    {KEY(train.seed), CDDPI_KEY_LONG, "1", 0, BIG,
     .text = "Initial parameters, data order, dropout and random crops follow from it."},
    {KEY(train.run_dir), CDDPI_KEY_TEXT, "\"\"", .is_path = true, .local = true,
     .text = "Folder of the run's files; empty: runs/NAME, after the configuration file. "
             "$CDDP_RUN_DIR (cddp-run --run-dir) comes before it."},
    {KEY(train.resume), CDDPI_KEY_TEXT, "\"none\"", .is_path = true,
     .text = "*none*; *auto*: go on from the newest whole checkpoint of *train.run_dir*, if there "
             "is one (what cannot be read is an error, not none); else the folder of a checkpoint "
             "to go on from, or of a run: its newest whole one. A job that its launcher starts "
             "again always goes on with what it has saved itself."},
    {KEY(train.resume_data), CDDPI_KEY_ENUM, "\"same\"", CHOICES(CDDPI_RESUME_DATA_MAP),
     .text = "Whether a run may go on with data of other contents, but as many samples: *same*: "
             "that is an error; *any*: it is a warning, and checkpoints from then on are of the "
             "new data."},
    {KEY(train.checkpoint_steps), CDDPI_KEY_LONG, "0", 0, BIG,
     .text = "Write a checkpoint every so many steps; 0: not by steps."},
    {KEY(train.checkpoint_seconds), CDDPI_KEY_REAL, "600.0", 0, 1e9,
     .text = "Write a checkpoint when so many seconds passed since the last; 0: not by time."},
    {KEY(train.checkpoint_at_end), CDDPI_KEY_BOOL, "true",
     .text = "Write a checkpoint when the run ends or is stopped; *false*: for measuring speed."},
    {KEY(train.keep), CDDPI_KEY_INT, "3", 0, 1 << 20,
     .text = "How many of the newest checkpoints are kept; 0: all. Fewer, but always the newest "
             "whole one, where the disk has no room for the next one otherwise."},
    {KEY(train.full_disk_seconds), CDDPI_KEY_REAL, "600.0", 0, 1e9,
     .text = "How long the last checkpoint is tried again and again when the disk is full, so that "
             "room can be made, or when it fails for another reason that may pass, such as an "
             "error of the disk or its server, or too many open files; 0: once."},
    {KEY(train.eval_epochs), CDDPI_KEY_LONG, "1", 1, 1e9,
     .text = "Evaluate after every so many epochs, and at the end."},
    {KEY(train.device), CDDPI_KEY_ENUM, "\"auto\"", CHOICES(CDDPI_TRAIN_DEVICE_MAP),
     .text = "Where the ranks compute: *cpu*; *cuda*, each on a GPU of its own, or with "
             "$CDDP_BACKEND = host several on one; *auto*: as *cddp-run --nproc gpu* or "
             "$CDDP_DEVICE says, else *cpu*."},
    {KEY(train.devices), CDDPI_KEY_TEXTS, "[]",
     ONLY(parallel.type, CDDPI_PARALLEL_MODEL, CDDPI_PARALLEL_DATA),
     .text = "The devices that each rank works with, in order: *cpu:N* is the N-th processor that "
             "the rank may use, with a thread bound to it, *cpu* a thread that is not, *cuda:N* a "
             "GPU, *cuda* the one that the rank would have alone; none: those that "
             "*parallel.placement* names. See SEVERAL DEVICES."},
    {KEY(train.offload_optimizer), CDDPI_KEY_BOOL, "false",
     .text = "On GPUs: the optimizer, with the moments, its own copy of the parameters and the "
             "mean of their gradients, is in the processor's memory, and the GPU has parameters "
             "and gradients only; with *train.device* = cuda. The results are the same. See "
             "SEVERAL DEVICES for what it costs; with *train.devices* it is always so."},
    {KEY(train.init_method), CDDPI_KEY_TEXT, "\"\"", .local = true,
     .text = "Where ranks meet that no launcher has started, as PyTorch's init_process_group() "
             "takes it: \"tcp://127.0.0.1:2568\", where rank 0 listens; \"file:///path\", on a "
             "file system of all; \"env://\", as MASTER_ADDR and MASTER_PORT say; empty: as the "
             "launcher says."},
    {KEY(train.rank), CDDPI_KEY_INT, "0", 0, 65535, .local = true,
     .text = "This process's rank, if *train.world_size* is given; each process has its own."},
    {KEY(train.world_size), CDDPI_KEY_INT, "0", 0, 65536, .local = true,
     .text = "How many processes meet at *train.init_method*; 0: rank and size are the launcher's, "
             "or RANK's and WORLD_SIZE's."},
    {KEY(train.precision), CDDPI_KEY_ENUM, "\"f32\"", CHOICES(CDDPI_PRECISION_MAP),
     .text = "Type of the factors of products; on a GPU that of all activations. *bf16* is several "
             "times faster on a processor with AMX; without it, and in heads wider than 64, "
             "attention stays f32 there, as LSTMs always do. *fp16* is for GPUs, and does as "
             "torch.amp.GradScaler: losses are scaled, by a factor that starts at 65536, halves "
             "when a gradient or an activation overflows, which skips that step on all ranks, and "
             "doubles after 2000 steps without. Metrics leave out the loss and accuracy of skipped "
             "steps. The factor does not fall below 1; there, a run of which 50 steps in a row "
             "were skipped ends with an error. Parameters, their gradients and sums are f32 in all "
             "(see *ddp.wire* for what is sent)."},
    {KEY(train.products), CDDPI_KEY_ENUM, "\"auto\"", CHOICES(CDDPI_MATMUL_MODE_MAP),
     .text = "How products of f32 factors are made: *auto* uses AMX where a product is large, the "
             "processor has it and $CDDP_THREADS is 1: with each factor the sum of three bf16 "
             "parts, as exact as f32 and nearly twice as fast. *fma*: always plain f32 arithmetic, "
             "for comparisons and for numbers below 1e-33 that matter."},
    {KEY(train.cuda_graph), CDDPI_KEY_ENUM, "\"auto\"", CHOICES(CDDPI_CUDA_GRAPH_MAP),
     .text = "On GPUs: capture a step as CUDA graphs and replay them, which costs the processor "
             "next to nothing. The results are the same. *auto*: after 5 steps, 5 are timed that "
             "are not replayed and 5 that are, in turns and on all ranks, and what was faster "
             "stays; the choice and both times are told. Steps that have fewer samples, at an "
             "epoch's end, are never replayed. *always*: from the third step on, without timing; "
             "an error that says why where it cannot be: on the processor, and between several "
             "ranks with $CDDP_BACKEND *ipc* or *staged*. *never*: not. Of replayed steps, "
             "*forward_ms*, *backward_ms*, *exposed_comm_ms* and *optimizer_ms* are not known: "
             "metrics have means over the others, or null."},
    {KEY(train.eval_steps), CDDPI_KEY_LONG, "0", 0, BIG,
     .text = "Evaluate after every so many steps instead; 0: by epochs."},
    {KEY(train.eval_batches), CDDPI_KEY_LONG, "0", 0, BIG,
     .text = "Evaluate on the first so many batches of the test data; 0: on all of it."},
    {KEY(train.generate_steps), CDDPI_KEY_LONG, "0", 0, BIG, WORDS,
     .text = "tokens, text: let the model write a text after every so many steps, and at the end; "
             "0: never."},
    {KEY(train.generate_prompt), CDDPI_KEY_TEXT, "\"\"", WORDS,
     .text = "What the text goes on from; without *data.vocabulary*, numbers of tokens."},
    {KEY(train.generate_tokens), CDDPI_KEY_INT, "100", 1, 1e6, WORDS,
     .text = "How many tokens it adds, at most: the one that ends a text ends it."},
    {KEY(train.generate_temperature), CDDPI_KEY_REAL, "0.8", 0, 100, WORDS,
     .text = "Divides the model's outputs before the softmax that tokens are drawn from; 0: always "
             "the likeliest one."},
    {KEY(train.generate_top_k), CDDPI_KEY_INT, "0", 0, 1 << 24, WORDS,
     .text = "Draw from the so many likeliest tokens; 0: from all."},
    {KEY(train.clip_norm), CDDPI_KEY_REAL, "0.0", 0, 1e30,
     .text = "Scale gradients whose global norm is larger down to it; 0: never."},
    {KEY(train.log_steps), CDDPI_KEY_LONG, "10", 1, BIG,
     .text = "A line of metrics every so many steps, and after the first and each epoch's last."},
    {KEY(train.timeout), CDDPI_KEY_REAL, "0.0", 0, 2e6,
     .text = "Seconds that a rank waits for the others; 0: $CDDP_TIMEOUT_MS, else 300."},
    {KEY(train.tensorboard), CDDPI_KEY_BOOL, "true",
     .text = "Write the metrics for TensorBoard as well."},
    {KEY(train.sample_log), CDDPI_KEY_TEXT, "\"\"", .is_path = true, .local = true,
     .text = "Each rank appends to the file of this name, a dot and its rank one line a step: "
             "step, epoch and the samples it took; empty: not."},
    {KEY(train.trace), CDDPI_KEY_TEXT, "\"\"",
     .text = "Steps to be traced, as *10-20*, counted from 1: each rank writes trace/rank-R.json "
             "into the run's folder, which *cddp-trace*(1) merges and the report shows; empty: "
             "those of $CDDP_TRACE, or none."},
    {KEY(train.prometheus), CDDPI_KEY_TEXT, "\"\"", .is_path = true, .local = true,
     .text = "Rank 0 writes the newest metrics into this file, in the text format of Prometheus, "
             "whole each time: for the textfile collector of its node exporter; empty: not."},

    {KEY(ddp.first_bucket_bytes), CDDPI_KEY_LONG, "0", 0, 4 * GIB,
     .text = "Size from which the first bucket of gradients is closed; 0: as *ddp.bucket_bytes* "
             "says, else 1048576 or that."},
    {KEY(ddp.bucket_bytes), CDDPI_KEY_LONG, "0", 0, 4 * GIB,
     .text = "Size from which each other bucket is closed. 0: between hosts this size, the first "
             "bucket's and that of parts are chosen from the link's measured latency and "
             "bandwidth, so that as little as possible is left to send when backward ends; once "
             "more with the times of the first backward, unless a sharded optimizer goes on from a "
             "checkpoint or is a pipeline's ($CDDP_LOG=info tells). On one host, on GPUs, or if "
             "one of the three is given: 26214400. Results are the same."},
    {KEY(ddp.part_bytes), CDDPI_KEY_LONG, "0", 0, 4 * GIB,
     .text = "A larger gradient is cut in parts of about so many bytes, at most 64, each a bucket "
             "of its own: one is sent while the next is copied or cast (*ddp.wire*). 0: not, or as "
             "*ddp.bucket_bytes* says. Never with *ddp.shard_optimizer*."},
    {KEY(ddp.wire), CDDPI_KEY_ENUM, "\"f32\"", CHOICES(CDDPI_WIRE_MAP),
     .text = "Type in which gradients are exchanged. With *ddp.shard_optimizer* the updated "
             "parameters are still sent as they are kept: of the bytes that a step sends in f32, "
             "bf16 and f16 then leave three quarters, without it half."},
    {KEY(ddp.allow_unused), CDDPI_KEY_BOOL, "false",
     .text = "Parameters may get no gradient in a step."},
    {KEY(ddp.deterministic), CDDPI_KEY_BOOL, "true",
     .text = "On GPUs: sums over ranks are taken in one order, in f32 for 16-bit types, and sums "
             "of attention, convolutions and products, too, so that two runs give the same bits; "
             "false: in the order that is fastest. On the processor they always are."},
    {KEY(ddp.shard_optimizer), CDDPI_KEY_BOOL, "true",
     .text = "Each rank updates its part of the parameters, and keeps the optimizer's state of "
             "that part alone (ZeRO stage 1); the results are the same. Behind an update ranks "
             "send each other their parts, on GPUs in 16 bits where products read them so "
             "(*train.precision*)."},

    {KEY(parallel.type), CDDPI_KEY_ENUM, "\"ranks\"", CHOICES(CDDPI_PARALLEL_TYPE_MAP),
     .text = "*ranks*: a rank works on one device, with the whole model or, with "
             "*parallel.pipeline*, with a stage; *model_parallel*: each rank has the layers of the "
             "whole model on several devices, *train.devices*; *data_parallel*: each rank has a "
             "copy of the model on several devices, as PyTorch's DataParallel. See SEVERAL "
             "DEVICES."},
    {KEY(parallel.devices), CDDPI_KEY_TEXTS, "[]", ONLY(parallel.type, CDDPI_PARALLEL_DATA),
     .text = "The devices that have a copy of the model, as in *train.devices*, of which they are "
             "some if both are given; none: *train.devices*. The first has the parameters."},
    {KEY(parallel.output_device), CDDPI_KEY_TEXT, "\"\"", ONLY(parallel.type, CDDPI_PARALLEL_DATA),
     .text = "The device on which the outputs come together, and the loss is; empty: the first."},
    {KEY(parallel.layers), CDDPI_KEY_TEXTS, "[]", ONLY(parallel.type, CDDPI_PARALLEL_DATA),
     .text = "Names of layers, as in *parallel.placement*: these alone have copies, one behind the "
             "other, with what directly follows them and has no parameters; all others, and the "
             "loss, are on the first device. None: all layers have copies."},
    {KEY(parallel.placement), CDDPI_KEY_TEXT, "\"\"", MODEL_PARALLEL,
     .text = "Which layers are on which device: \"layer1=cpu:0, fc=cpu:1\", or \"embedding=cpu, "
             "fc=cuda:0\". A layer is named by its name, by what names begin with (*layer1* for "
             "*layer1.0.conv1* and the like), or by its number from 0. Layers without parameters "
             "that are not named go with the layer before them."},
    {KEY(parallel.pipeline), CDDPI_KEY_INT, "1", 1, 4096,
     .text = "Divide the model into so many stages, each on a rank of its own; the world size is a "
             "multiple of it, and ranks with the same stage are replicas. 1: every rank has the "
             "whole model. See PIPELINES."},
    {KEY(parallel.schedule), CDDPI_KEY_ENUM, "\"1f1b\"", CHOICES(CDDPI_PIPELINE_SCHEDULE_MAP),
     .text = "The order of forwards and backwards: *1f1b*, a backward as soon as there can be one, "
             "so that the first stage keeps the activations of as many micro-batches as there are "
             "stages; *gpipe*, all forwards first, which keeps those of all; *interleaved*, as "
             "1f1b with *parallel.chunks* on each rank, so that ranks wait less; *zero_bubble*, as "
             "1f1b, but gradients of parameters are made where ranks would wait (ZB-H1), for which "
             "the later stages keep more."},
    {KEY(parallel.chunks), CDDPI_KEY_INT, "1", 1, CDDPI_TRAINER_CHUNKS,
     .text = "interleaved: chunks of layers on each rank: stages are dealt out to the ranks in so "
             "many rounds."},
    {KEY(parallel.micro_batches), CDDPI_KEY_LONG, "0", 0, 1 << 16,
     .text = "Into how many micro-batches a pipeline's share of a step is cut, which are in "
             "different stages at once; 0: *train.accumulate*. With P stages, each waits for (P - "
             "1) / (micro-batches + P - 1) of the time; zero_bubble: where each of its three "
             "passes takes as long, (P - 1) / (3 x micro-batches + P - 1)."},
    {KEY(parallel.stages), CDDPI_KEY_STAGES, "[]",
     .text = "The first layer of each stage but the first, by name; or *auto*, or none: they are "
             "chosen when the run begins. A name also stands for the layers whose names begin with "
             "it and a dot. Two runs with the same division have the same bits. model_parallel: "
             "also the first and the last layer of each device's stage, as ( [\"input\", "
             "\"layer2\"], [\"layer3\", \"fc\"] )."},
    {KEY(parallel.balance), CDDPI_KEY_ENUM, "\"time\"", CHOICES(CDDPI_BALANCE_MAP),
     .text = "How stages are chosen: *time*, so that all take as equally long as can be, which "
             "rank 0 measures; *memory*, so that the one that takes most takes as little as can "
             "be: parameters, gradients, the optimizer's state (without *ddp.shard_optimizer*), "
             "and the outputs of layers for all micro-batches that the stage keeps."},
    {KEY(parallel.memory_bytes), CDDPI_KEY_LONG, "0", 0, 1e18,
     .text = "What the stages of a rank may take, counted as for *parallel.balance* = *memory*: an "
             "error names one that alone does not fit. 0: any."},
    {KEY(parallel.recompute), CDDPI_KEY_INTS, "[]", 0, 1 << 16,
     .text = "Stages, numbered from 0, that keep of each block its input alone and compute the "
             "rest again for backward, as *model.recompute* lets all do (gpt2, resnet18 "
             "to resnet50)."},

    {KEY(optimizer.type), CDDPI_KEY_ENUM, "\"sgd\"", CHOICES(CDDPI_OPTIM_TYPE_MAP),
     .text = "The rule by which parameters are updated."},
    {KEY(optimizer.lr), CDDPI_KEY_REAL, "0.1", 0, 1e6,
     .text = "Learning rate: the highest of the schedule. adamw wants a far smaller one than sgd, "
             "0.001 say."},
    {KEY(optimizer.momentum), CDDPI_KEY_REAL, "0.9", 0, 0.999999, SGD, .text = "sgd: momentum."},
    {KEY(optimizer.nesterov), CDDPI_KEY_BOOL, "false", SGD, .text = "sgd: Nesterov's momentum."},
    {KEY(optimizer.weight_decay), CDDPI_KEY_REAL, "0.0", 0, 1e3,
     .text = "sgd: that much of a parameter is added to its gradient; adamw: decoupled decay."},
    {KEY(optimizer.decay_all), CDDPI_KEY_BOOL, "false",
     .text = "Weight decay also for biases and normalisation."},
    {KEY(optimizer.beta1), CDDPI_KEY_REAL, "0.9", 0, 0.999999, ADAMW,
     .text = "adamw: first moment."},
    {KEY(optimizer.beta2), CDDPI_KEY_REAL, "0.999", 0, 0.99999999, ADAMW,
     .text = "adamw: second moment."},
    {KEY(optimizer.epsilon), CDDPI_KEY_REAL, "1e-8", 1e-30, 1, ADAMW,
     .text = "adamw: added to the root of the second moment."},
    {KEY(optimizer.discriminator_lr), CDDPI_KEY_REAL, "0.0", 0, 1e6, DCGAN,
     .text = "dcgan: the discriminator's learning rate, where it is another than the generator's, "
             "*optimizer.lr*; 0: it is not. Both have the other keys in common, and optimizers of "
             "their own."},
    {KEY(optimizer.schedule.type), CDDPI_KEY_ENUM, "\"constant\"", CHOICES(CDDPI_SCHEDULE_TYPE_MAP),
     .text = "How the learning rate changes after warm-up; *wsd*: it stays until the last "
             "*decay_steps* steps."},
    {KEY(optimizer.schedule.warmup_steps), CDDPI_KEY_LONG, "0", 0, BIG,
     .text = "Steps in which the learning rate rises linearly to *optimizer.lr*."},
    {KEY(optimizer.schedule.final_lr), CDDPI_KEY_REAL, "0.0", 0, 1e6, FALLING,
     .text = "linear, cosine, wsd: learning rate of the last step."},
    {KEY(optimizer.schedule.step_size), CDDPI_KEY_LONG, "1000", 1, BIG, IN_STEPS,
     .text = "step: every so many steps, counted from the end of warm-up, ..."},
    {KEY(optimizer.schedule.gamma), CDDPI_KEY_REAL, "0.1", 0, 1e3, IN_STEPS,
     .text = "step: ... the learning rate is multiplied by this."},
    {KEY(optimizer.schedule.total_steps), CDDPI_KEY_LONG, "0", 0, BIG, FALLING,
     .text = "linear, cosine, wsd: the step in which *final_lr* is reached; 0: the last one of all "
             "epochs."},
    {KEY(optimizer.schedule.decay_steps), CDDPI_KEY_LONG, "0", 0, BIG, WSD,
     .text = "wsd: in the last so many steps the learning rate falls; 0: in a tenth of them."},
    {KEY(optimizer.schedule.decay), CDDPI_KEY_ENUM, "\"linear\"", CHOICES(CDDPI_SCHEDULE_DECAY_MAP),
     WSD,
     .text = "wsd: with x of these steps done, 0 to 1, the rate falls as 1 - x or as 1 - sqrt(x)."},
};
const size_t cddpi_config_key_count = sizeof cddpi_config_keys / sizeof cddpi_config_keys[0];

_Static_assert(sizeof cddpi_config_keys / sizeof cddpi_config_keys[0] <= CDDPI_KEYS_MAX,
               "struct cddpi_config has a place for each key");
