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
     .text = "The network: a preset, or *layers* for a list in *model.layers*. dcgan has two "
             "networks; see GENERATED IMAGES."},
    {KEY(model.hidden), CDDPI_KEY_INTS, "[512, 512]", 1, 1 << 20,
     ONLY(model.type, CDDPI_MODEL_MLP, CDDPI_MODEL_LSTM_LM),
     .text = "mlp: widths of the hidden layers. lstm_lm: widths of the LSTM layers."},
    {KEY(model.dropout), CDDPI_KEY_REAL, "0.0", 0, 0.999,
     ONLY(model.type, CDDPI_MODEL_MLP, CDDPI_MODEL_CNN, CDDPI_MODEL_GPT2, CDDPI_MODEL_ALEXNET,
          CDDPI_MODEL_VGG11, CDDPI_MODEL_LSTM_LM),
     .text = "mlp, cnn: probability that an output of a hidden layer is zeroed in training. "
             "alexnet, vgg11: the same after the first two of the three linear layers. gpt2: "
             "after the embedding, and after the attention and the perceptron of each block; "
             "attention probabilities are never dropped. lstm_lm: after the embedding and after "
             "each LSTM layer."},
    {KEY(model.sync_batch_norm), CDDPI_KEY_BOOL, "false", ONLY(model.type, RESNETS),
     .text = "resnet18 to resnet50: batch normalisation takes its statistics over all ranks."},
    {KEY(model.size), CDDPI_KEY_TEXT, "\"\"", GPT2,
     .text = "gpt2: *124M*, *350M*, *774M* or *1558M*. It sets those of *blocks*, *heads* and "
             "*embed* that are 0. Empty: give all three."},
    {KEY(model.blocks), CDDPI_KEY_INT, "0", 0, 256, GPT2,
     .text = "gpt2: number of blocks, each of attention and a perceptron; 0: as *model.size* "
             "says."},
    {KEY(model.heads), CDDPI_KEY_INT, "0", 0, 1024, GPT2,
     .text = "gpt2: attention heads, which must divide *model.embed*; 0: as *model.size* says."},
    {KEY(model.embed), CDDPI_KEY_INT, "0", 0, 1 << 16,
     ONLY(model.type, CDDPI_MODEL_GPT2, CDDPI_MODEL_LSTM_LM),
     .text = "gpt2: features of a token; 0: as *model.size* says. lstm_lm: the same; 0: the last "
             "of *model.hidden*."},
    {KEY(model.recompute), CDDPI_KEY_BOOL, "false", ONLY(model.type, CDDPI_MODEL_GPT2, RESNETS),
     .text = "gpt2, resnet18 to resnet50: keep only the input of each block, and compute the "
             "block again before its backward: less memory, more work, the same results. "
             "*cddp-train --dry-run* prints how much."},
    {KEY(model.tied), CDDPI_KEY_BOOL, "false", ONLY(model.type, CDDPI_MODEL_LSTM_LM),
     .text = "lstm_lm: the last layer shares its weight with the embedding. *model.embed* must "
             "then equal the last of *model.hidden*."},
    {KEY(model.layers), CDDPI_KEY_LAYERS, "()", ONLY(model.type, CDDPI_MODEL_LAYERS),
     .text = "The layers, one group each, if *model.type* is *layers*."},
    {KEY(model.context), CDDPI_KEY_INT, "1024", 1, 1 << 20, TOKENS,
     .text = "tokens, text: how many tokens a sample has; a prediction sees at most as many."},
    {KEY(model.vocab), CDDPI_KEY_INT, "0", 0, 1 << 22, TOKENS,
     .text = "tokens, text: how many tokens the model knows, at least as many as the data have; "
             "0: exactly as many."},
    {KEY(model.loss), CDDPI_KEY_ENUM, "\"cross_entropy\"", CHOICES(CDDPI_LOSS_MAP),
     .text = "What training minimises. With classes: *cross_entropy* (softmax); *mse* compares "
             "the outputs with one-hot targets; *binary_cross_entropy* treats the outputs as "
             "logits of one-hot targets. With real targets (npy, csv): *mse*, the mean square "
             "error, or *l1*, the mean absolute error; evaluations then report the rmse or the "
             "mae, and no accuracy."},
    {KEY(model.weights), CDDPI_KEY_TEXT, "\"\"", .is_path = true,
     .text = "A safetensors file with the initial parameters; empty: random values from "
             "*train.seed*. gpt2 also takes weights of Hugging Face and llm.c, and folders with "
             "a model.safetensors or the index of its shards; see *cddp-convert*(1). Of "
             "*blocks*, *heads*, *embed* and *vocab*, those that you do not give come from the "
             "weights. *context* may be shorter than that of the weights."},

    {KEY(model.latent), CDDPI_KEY_INT, "100", 1, 1 << 16, DCGAN,
     .text = "dcgan: length of the random vector from which the generator makes an image."},
    {KEY(model.generator_units), CDDPI_KEY_INT, "64", 1, 1024, DCGAN,
     .text = "dcgan: channels of the generator's last layer but one; each earlier layer has "
             "twice as many."},
    {KEY(model.discriminator_units), CDDPI_KEY_INT, "64", 1, 1024, DCGAN,
     .text = "dcgan: channels of the discriminator's first layer; each later layer has twice as "
             "many."},
    {KEY(model.towers), CDDPI_KEY_INT, "1", 1, 2, ONLY(model.type, CDDPI_MODEL_ALEXNET),
     .text = "alexnet: *1*: the two towers are groups of channels of the same layers. *2*: each "
             "tower has layers of its own, which *parallel.placement* can put on different "
             "devices: a1 and b1 (two convolutions), a3 and b3 (three convolutions, the first of "
             "which reads both towers), a6, b6, a7, b7 (linear layers, which read both towers) "
             "and fc8. Normalisation then sees only its own tower's channels."},

    {KEY(data.type), CDDPI_KEY_ENUM, "\"idx\"", CHOICES(CDDPI_DATA_TYPE_MAP),
     .text = "The format of the data files. *idx*: images and their classes, plain or gzip'd. "
             "*csv*: tables. *npy*: NumPy's .npy and .npz files. *image_folder*: JPEG and PNG "
             "files, a folder for each class. *text*: text files, plain or gzip'd. *tokens*: "
             "llm.c's .bin files of GPT-2 or Llama 3. *synthetic*: no files; random numbers, for "
             "benchmarks. See DATA."},
    {KEY(data.train_images), CDDPI_KEY_TEXT, "\"\"", .is_path = true, IDX, NEEDED(CDDPI_DATA_IDX),
     .text = "idx: images to train on."},
    {KEY(data.train_labels), CDDPI_KEY_TEXT, "\"\"", .is_path = true, IDX, NEEDED(CDDPI_DATA_IDX),
     .text = "idx: classes of the images to train on."},
    {KEY(data.test_images), CDDPI_KEY_TEXT, "\"\"", .is_path = true, IDX, NEEDED(CDDPI_DATA_IDX),
     .text = "idx: images to evaluate on."},
    {KEY(data.test_labels), CDDPI_KEY_TEXT, "\"\"", .is_path = true, IDX, NEEDED(CDDPI_DATA_IDX),
     .text = "idx: classes of the images to evaluate on."},
    {KEY(data.classes), CDDPI_KEY_INT, "0", 0, 1 << 16,
     ONLY(data.type, CDDPI_DATA_IDX, CDDPI_DATA_SYNTHETIC, CDDPI_DATA_NPY),
     .text = "idx, npy: number of classes, at most 256 for idx. A label beyond it is an error "
             "that names file and sample. 0: the largest label of the training data plus 1. idx "
             "warns of classes without a sample. synthetic: classes of the images; 0: 10."},
    {KEY(data.samples), CDDPI_KEY_LONG, "1024", 1, 1e9, ONLY(data.type, CDDPI_DATA_SYNTHETIC),
     .text = "synthetic: number of training samples; there are a tenth as many test samples. A "
             "language model gets sequences of *model.context* random tokens, other models get "
             "images."},
    {KEY(data.image), CDDPI_KEY_INTS, "[1, 28, 28]", 1, 1 << 14,
     ONLY(data.type, CDDPI_DATA_SYNTHETIC),
     .text = "synthetic: channels (at most 4), height and width of images."},
    {KEY(data.train), CDDPI_KEY_TEXTS, "[]", .is_path = true, FILES,
     NEEDED(CDDPI_DATA_TOKENS, CDDPI_DATA_TEXT, CDDPI_DATA_IMAGE_FOLDER, CDDPI_DATA_NPY,
            CDDPI_DATA_CSV),
     .text = "tokens, text, npy, csv: files to train on: a name, a pattern as in *glob*(7), or a "
             "list of them. The files of a pattern are sorted by name. image_folder: the folder "
             "that contains a folder for each class."},
    {KEY(data.test), CDDPI_KEY_TEXTS, "[]", .is_path = true, FILES, NEEDED(CDDPI_DATA_TOKENS),
     .text = "tokens, text, npy, csv: files to evaluate on, in the same form. image_folder: such "
             "a folder to evaluate on. Without it, *data.test_fraction* of *data.train* is used, "
             "except with tokens, which need it."},
    {KEY(data.train_targets), CDDPI_KEY_TEXTS, "[]", .is_path = true, NPY,
     .text = "npy: .npy files with the classes or real targets of *data.train*, one for each of "
             "its files, in the same order. None for .npz archives, which contain both."},
    {KEY(data.test_targets), CDDPI_KEY_TEXTS, "[]", .is_path = true, NPY,
     .text = "npy: the same for *data.test*."},
    {KEY(data.npz_inputs), CDDPI_KEY_TEXT, "\"x\"", NPY,
     .text = "npy: name of the array of samples in an .npz archive."},
    {KEY(data.npz_targets), CDDPI_KEY_TEXT, "\"y\"", NPY,
     .text = "npy: name of the array of classes or real targets in an .npz archive."},
    {KEY(data.test_fraction), CDDPI_KEY_REAL, "0.1", 1e-6, 0.9,
     ONLY(data.type, CDDPI_DATA_TEXT, CDDPI_DATA_IMAGE_FOLDER, CDDPI_DATA_NPY, CDDPI_DATA_CSV),
     .text = "The part of *data.train* that is kept for evaluation, and not trained on, if there "
             "is no *data.test*. text: the end of the tokens. image_folder: this part of each "
             "class. npy, csv: this part of the samples. Which samples these are does not depend "
             "on the run or its seed."},
    {KEY(data.target), CDDPI_KEY_TEXTS, "[]", CSV, NEEDED(CDDPI_DATA_CSV),
     .text = "csv: the column to predict. Each different value is a class; classes are numbered "
             "in the order of the values, as integers if all are integers, else by their bytes. "
             "With *model.loss* mse or l1, the column has real numbers, and you can list several "
             "columns."},
    {KEY(data.features), CDDPI_KEY_TEXTS, "[]", CSV,
     .text = "csv: the input columns; none given: all but those of *data.target* and "
             "*data.ignore*. They keep the order of the file."},
    {KEY(data.ignore), CDDPI_KEY_TEXTS, "[]", CSV,
     .text = "csv: columns that are not used, such as a row's number or name."},
    {KEY(data.categories), CDDPI_KEY_TEXTS, "[]", CSV,
     .text = "csv: columns whose numbers are categories, such as postal codes. A column whose "
             "first value is not a number always has categories. Each category becomes one "
             "input, 1 or 0; categories are in the order of classes (see *data.target*), at most "
             "1000 per column."},
    {KEY(data.delimiter), CDDPI_KEY_TEXT, "\",\"", CSV,
     .text = "csv: the separator of fields: one character, or *tab*."},
    {KEY(data.missing), CDDPI_KEY_ENUM, "\"error\"", CHOICES(CDDPI_DATA_MISSING_MAP), CSV,
     .text = "csv: what to do if a field of *data.features* is empty, or is NA, N/A, NaN, nan, "
             "NULL, null or ? without quotes. *error*: end the run with an error that names the "
             "line. *mean*: use the mean of the training rows (for a category, its frequency). A "
             "missing target is always an error."},
    {KEY(data.normalize), CDDPI_KEY_ENUM, "\"none\"", CHOICES(CDDPI_NORMALIZE_MAP),
     ONLY(data.type, CDDPI_DATA_NPY, CDDPI_DATA_CSV),
     .text = "npy, csv: how each number of a sample is changed: *standard*, to a mean of 0 and a "
             "standard deviation of 1 over the training data; *minmax*, to 0 to 1. npy: samples of "
             "two or more dimensions are changed by channels. csv: categories stay as they are. "
             "Targets are not changed. "
             "Checkpoints keep the statistics (*normalize* in state.json), by which a "
             "run goes on even if its data have changed."},
    {KEY(data.vocabulary), CDDPI_KEY_TEXT, "\"\"", .is_path = true, WORDS,
     .text = "text: the vocabulary that turns text into tokens; empty: each byte is a token. "
             "tokens: the vocabulary that made the tokens, if you know it: it says how many "
             "tokens there are, and what they stand for."},
    {KEY(data.size), CDDPI_KEY_INT, "224", 1, 4096, FOLDERS,
     .text = "image_folder: height and width of the model's input. In training, a random part of "
             "each image is resized to it, like torchvision's RandomResizedCrop."},
    {KEY(data.resize), CDDPI_KEY_INT, "0", 0, 8192, FOLDERS,
     .text = "image_folder: in evaluation, the shorter side of an image is resized to this "
             "number of pixels, and the middle *data.size* pixels are cut out; 0: an eighth more "
             "than *data.size*, rounded up (256 for 224)."},
    {KEY(data.crop_area), CDDPI_KEY_REALS, "[0.08, 1.0]", 1e-6, 1, FOLDERS,
     .text = "image_folder: in training, the smallest and the largest part of an image's area "
             "that is cut out, with sides of 3:4 to 4:3."},
    {KEY(data.on_error), CDDPI_KEY_ENUM, "\"error\"", CHOICES(CDDPI_DATA_ON_ERROR_MAP), FOLDERS,
     .text = "image_folder: what to do if a file is broken or missing. *error*: end the run with "
             "an error that names it. *skip*: use the next readable file instead (the same one "
             "on every rank and in every run), and warn with the number of such files."},
    {KEY(data.mean), CDDPI_KEY_REALS, "[0.0]", -1e6, 1e6, ALL_IMAGES,
     .text = "images: subtracted from each value (values are from 0 to 1); one number, or one "
             "per channel."},
    {KEY(data.std), CDDPI_KEY_REALS, "[1.0]", 1e-6, 1e6, ALL_IMAGES,
     .text = "images: each value is then divided by it; one number, or one per channel."},
    {KEY(data.crop_padding), CDDPI_KEY_INT, "0", 0, 64, IMAGES,
     .text = "idx, synthetic: pad training images with this many zeros on each side, and crop "
             "them at random; 0: do not."},
    {KEY(data.flip), CDDPI_KEY_BOOL, "false", ALL_IMAGES,
     .text = "images: mirror half of the training images, chosen at random."},
    {KEY(data.threads), CDDPI_KEY_INT, "-1", -1, 64, .local = true,
     .text = "Threads of each rank that prepare batches. 0: the compute thread does it. -1: one "
             "thread if the rank may use more than one core, else none."},
    {KEY(data.prefetch), CDDPI_KEY_INT, "4", 1, 1024, .local = true,
     .text = "How many batches are kept ready."},
    {KEY(data.order), CDDPI_KEY_ENUM, "\"random\"", CHOICES(CDDPI_DATA_ORDER_MAP),
     .text = "Order of the samples in an epoch; *torch*: that of PyTorch's DistributedSampler "
             "for the same seed and epoch."},

    {KEY(train.epochs), CDDPI_KEY_LONG, "1", 1, 1e9, .text = "Passes over the training data."},
    {KEY(train.max_steps), CDDPI_KEY_LONG, "0", 0, BIG,
     .text = "End the run after this step; 0: after the last epoch. The learning rate schedule "
             "stays that of all epochs."},
    {KEY(train.batch_size), CDDPI_KEY_LONG, "256", 1, 1 << 24,
     .text = "Samples per step, of all ranks together. A sample of text is *model.context* "
             "tokens."},
    {KEY(train.accumulate), CDDPI_KEY_LONG, "1", 1, 1 << 24,
     .text = "To save memory, each rank computes its share of a step in this many micro-batches, "
             "one after the other. Their gradients add up, and are exchanged once."},
    {KEY(train.micro_batch), CDDPI_KEY_AUTO, "0", 0, 1 << 24,
     .text = "Cut each step's batch into micro-batches of this many samples, in their order, and "
             "share these out over the ranks. Then the results have the same bits on any number of "
             "ranks, up to one per micro-batch; on GPUs only with *ddp.deterministic*. auto: the "
             "largest power of two that fits each "
             "rank's memory and gives each rank a micro-batch; the run folder's train.conf has the "
             "number, with which the run also goes on on other numbers of ranks. 0: not; see "
             "*train.accumulate*."},
    {KEY(train.eval_batch_size), CDDPI_KEY_LONG, "1000", 1, 1 << 24,
     .text = "Samples per evaluation batch, of all ranks together. tokens, text, and all data with "
             "*train.micro_batch*: computed in pieces no larger than a micro-batch in training."},
    {KEY(train.seed), CDDPI_KEY_LONG, "1", 0, BIG,
     .text = "It determines initial parameters, data order, dropout and random crops."},
    {KEY(train.run_dir), CDDPI_KEY_TEXT, "\"\"", .is_path = true, .local = true,
     .text = "Folder of the run's files; empty: runs/NAME, where NAME is that of the "
             "configuration file. $CDDP_RUN_DIR (cddp-run --run-dir) takes precedence."},
    {KEY(train.resume), CDDPI_KEY_TEXT, "\"none\"", .is_path = true,
     .text = "*none*: begin a new run. *auto*: continue from the newest complete checkpoint in "
             "*train.run_dir*, if there is one; a checkpoint that cannot be read is an error. A "
             "folder: continue from this checkpoint, or from the newest complete one of this "
             "run. A job that its launcher restarts always continues from its own checkpoints."},
    {KEY(train.resume_data), CDDPI_KEY_ENUM, "\"same\"", CHOICES(CDDPI_RESUME_DATA_MAP),
     .text = "Whether a run may continue with data of the same number of samples but other "
             "contents. *same*: that is an error. *any*: that is a warning, and later "
             "checkpoints belong to the new data."},
    {KEY(train.checkpoint_steps), CDDPI_KEY_LONG, "0", 0, BIG,
     .text = "Write a checkpoint every N steps; 0: not by steps."},
    {KEY(train.checkpoint_seconds), CDDPI_KEY_REAL, "600.0", 0, 1e9,
     .text = "Write a checkpoint if this many seconds have passed since the last; 0: not by "
             "time."},
    {KEY(train.checkpoint_at_end), CDDPI_KEY_BOOL, "true",
     .text = "Write a checkpoint when the run ends or is stopped; set *false* to measure speed."},
    {KEY(train.checkpoint_async), CDDPI_KEY_ENUM, "\"auto\"", CHOICES(CDDPI_CHECKPOINT_ASYNC_MAP),
     .text = "Write checkpoints in the background: training stops only while the state is copied; "
             "threads with the lowest priority write the copy. The files are the same. On "
             "processors, ranks on the machine of rank 0 each copy a part into memory that they "
             "share, and all write; on GPUs, in a pipeline, with several devices per rank, or with "
             "a sharded optimizer on several machines, rank 0 copies and writes everything. "
             "The copy's memory is kept; *cddp-train --dry-run* prints its size. *auto*: only if "
             "twice that memory is free. *true*: if the copy fits. A checkpoint that is due "
             "by *train.checkpoint_seconds* while one is being written comes after it; one that "
             "is due by *train.checkpoint_steps*, or was asked for, stops training until then. The "
             "last checkpoint of a run is always written before the run ends."},
    {KEY(train.recovery), CDDPI_KEY_ENUM, "\"auto\"", CHOICES(CDDPI_RECOVERY_MAP),
     .text =
         "From where a job goes on that has lost ranks and starts others (*cddp-run "
         "--max-restarts*, *--elastic*, *--nnodes*). *memory*: from its last step. At the end "
         "of each, a rank copies its part of the state to memory that its launcher holds; of "
         "several launchers, it also sends it to a rank of another. So all ranks may be killed, "
         "or a machine. *cddp-train --dry-run* prints how much memory that takes. *auto*: the "
         "same if twice that memory is free, but not at every step if that would take more "
         "than 2 % of the time: a loss then costs a few short steps. *checkpoint*: from the "
         "newest checkpoint. Where "
         "*train.check_replicas* compares the whole state, only states that were compared are "
         "kept."},
    {KEY(train.keep), CDDPI_KEY_INT, "3", 0, 1 << 20,
     .text = "How many of the newest checkpoints are kept; 0: all. If the disk is full, older "
             "ones are deleted first; the newest complete one is always kept."},
    {KEY(train.full_disk_seconds), CDDPI_KEY_REAL, "600.0", 0, 1e9,
     .text = "If the last checkpoint of a run cannot be written because the disk is full, or for "
             "another reason that may pass (an error of the disk or its server, too many open "
             "files), retry for this many seconds; 0: do not retry."},
    {KEY(train.check_replicas), CDDPI_KEY_LONG, "0", 0, BIG,
     .text = "Every N steps, and before each checkpoint, compare a hash of parameters, optimizer "
             "state and cursor (with *train.micro_batch* also running statistics) of all ranks "
             "that must have the same. If a faulty memory or processor has changed them, end the "
             "job with a message that names the rank, by majority, and the first element that "
             "differs. 0: compare only at the end, and no optimizer state. Finds all damage only "
             "without *ddp.shard_optimizer*, see *DAMAGE*."},
    {KEY(train.eval_epochs), CDDPI_KEY_LONG, "1", 1, 1e9,
     .text = "Evaluate every N epochs, and at the end."},
    {KEY(train.device), CDDPI_KEY_ENUM, "\"auto\"", CHOICES(CDDPI_TRAIN_DEVICE_MAP),
     .text = "Where ranks compute. *cpu*: the CPU. *cuda*: a GPU for each rank; with "
             "$CDDP_BACKEND = host, ranks may share one. *auto*: as *cddp-run --nproc gpu* or "
             "$CDDP_DEVICE says, else the CPU."},
    {KEY(train.devices), CDDPI_KEY_TEXTS, "[]",
     ONLY(parallel.type, CDDPI_PARALLEL_MODEL, CDDPI_PARALLEL_DATA),
     .text = "The devices of each rank, in order. *cpu:N*: the N-th core that the rank may use, "
             "with a thread bound to it; *cpu*: a thread that is not bound; *cuda:N*: a GPU; "
             "*cuda*: the GPU that the rank would have alone. None given: those that "
             "*parallel.placement* names. See SEVERAL DEVICES."},
    {KEY(train.offload_optimizer), CDDPI_KEY_BOOL, "false",
     .text = "On GPUs, with *train.device* = cuda: keep the optimizer in CPU memory, with its "
             "moments, its own copy of the parameters, and the mean of the gradients; the GPU "
             "has only parameters and gradients. The results are the same. SEVERAL DEVICES says "
             "what it costs. With *train.devices*, this is always so."},
    {KEY(train.init_method), CDDPI_KEY_TEXT, "\"\"", .local = true,
     .text = "Where ranks meet if no launcher started them, as in PyTorch's "
             "init_process_group(): \"tcp://127.0.0.1:2568\", where rank 0 listens; "
             "\"file:///path\", on a file system that all ranks share; \"env://\": MASTER_ADDR "
             "and MASTER_PORT. Empty: as the launcher says."},
    {KEY(train.rank), CDDPI_KEY_INT, "0", 0, 65535, .local = true,
     .text = "This process's rank, if *train.world_size* is given; different in each process."},
    {KEY(train.world_size), CDDPI_KEY_INT, "0", 0, 65536, .local = true,
     .text = "How many processes meet at *train.init_method*; 0: rank and size come from the "
             "launcher, or from RANK and WORLD_SIZE."},
    {KEY(train.precision), CDDPI_KEY_ENUM, "\"f32\"", CHOICES(CDDPI_PRECISION_MAP),
     .text = "Type of the factors of products; on a GPU, also of all activations. *bf16* is "
             "several times faster on a CPU with AMX. (On CPUs, attention stays f32 without AMX "
             "and in heads wider than 64, and LSTMs stay f32 always.) *fp16* is for GPUs, and "
             "scales losses like torch.amp.GradScaler: the scale starts at 65536, halves when a "
             "gradient or an activation overflows (all ranks then skip the step), and doubles "
             "after 2000 steps without overflow. Metrics leave out skipped steps. The scale does "
             "not fall below 1; with a scale of 1, 50 skipped steps in a row end the run with an "
             "error. In all cases, parameters, their gradients and sums are f32 (*ddp.wire* says "
             "what is sent)."},
    {KEY(train.products), CDDPI_KEY_ENUM, "\"auto\"", CHOICES(CDDPI_MATMUL_MODE_MAP),
     .text =
         "How products of f32 factors are computed. *auto*: with AMX, if the CPU has it, the "
         "product is large and $CDDP_THREADS is 1 (or *train.micro_batch* is given); each "
         "factor is then the sum of three bf16 parts, which is as exact as f32 and nearly twice "
         "as fast. *fma*: always with plain f32 arithmetic, for comparisons, and if numbers "
         "below 1e-33 matter."},
    {KEY(train.cuda_graph), CDDPI_KEY_ENUM, "\"auto\"", CHOICES(CDDPI_CUDA_GRAPH_MAP),
     .text = "On GPUs: capture a step as CUDA graphs, and replay it at next to no cost for the "
             "CPU. The results are the same. *auto*: after 5 steps, time 5 replayed and 5 other "
             "steps in turn, on all ranks, keep the faster kind, and print both times. *always*: "
             "replay from the third step on; if that is impossible (on the CPU, and between "
             "ranks with $CDDP_BACKEND *ipc* or *staged*), it is an error with the reason. "
             "*never*: do not. Steps with fewer samples, at the end of an epoch, are never "
             "replayed. Replayed steps have no *forward_ms*, *backward_ms*, *exposed_comm_ms* "
             "and *optimizer_ms*: metrics have means over the other steps, or null."},
    {KEY(train.eval_steps), CDDPI_KEY_LONG, "0", 0, BIG,
     .text = "Evaluate every N steps instead of by epochs; 0: by epochs."},
    {KEY(train.eval_batches), CDDPI_KEY_LONG, "0", 0, BIG,
     .text = "Evaluate on the first N batches of the test data only; 0: on all of it."},
    {KEY(train.generate_steps), CDDPI_KEY_LONG, "0", 0, BIG, WORDS,
     .text = "tokens, text: let the model write a text every N steps, and at the end; 0: never."},
    {KEY(train.generate_prompt), CDDPI_KEY_TEXT, "\"\"", WORDS,
     .text = "The beginning of the text; without *data.vocabulary*, numbers of tokens."},
    {KEY(train.generate_tokens), CDDPI_KEY_INT, "100", 1, 1e6, WORDS,
     .text = "At most how many tokens the model adds; the token that ends a text ends it "
             "earlier."},
    {KEY(train.generate_temperature), CDDPI_KEY_REAL, "0.8", 0, 100, WORDS,
     .text = "The model's outputs are divided by it before the softmax from which tokens are "
             "drawn; 0: always take the most likely token."},
    {KEY(train.generate_top_k), CDDPI_KEY_INT, "0", 0, 1 << 24, WORDS,
     .text = "Draw from the N most likely tokens only; 0: from all."},
    {KEY(train.clip_norm), CDDPI_KEY_REAL, "0.0", 0, 1e30,
     .text = "If the norm of all gradients is larger than this, scale them down to it; 0: never."},
    {KEY(train.log_steps), CDDPI_KEY_LONG, "10", 1, BIG,
     .text = "Write a line of metrics every N steps, after the first step, and after the last of "
             "each epoch."},
    {KEY(train.timeout), CDDPI_KEY_REAL, "0.0", 0, 2e6,
     .text = "How many seconds a rank waits for the others; 0: $CDDP_TIMEOUT_MS, else 300."},
    {KEY(train.tensorboard), CDDPI_KEY_BOOL, "true",
     .text = "Also write the metrics for TensorBoard."},
    {KEY(train.sample_log), CDDPI_KEY_TEXT, "\"\"", .is_path = true, .local = true,
     .text = "Each rank appends a line per step (step, epoch and its samples) to the file of "
             "this name plus a dot and its rank; empty: do not."},
    {KEY(train.trace), CDDPI_KEY_TEXT, "\"\"",
     .text = "Steps to trace, counted from 1, such as *10-20*: each rank writes "
             "trace/rank-R.json in the run's folder, which *cddp-trace*(1) merges and the report "
             "shows. Empty: those of $CDDP_TRACE, or none."},
    {KEY(train.prometheus), CDDPI_KEY_TEXT, "\"\"", .is_path = true, .local = true,
     .text = "Rank 0 writes the newest metrics to this file, in Prometheus' text format, for the "
             "textfile collector of its node exporter. The file is replaced as a whole. Empty: "
             "do not."},

    {KEY(ddp.first_bucket_bytes), CDDPI_KEY_LONG, "0", 0, 4 * GIB,
     .text = "Close the first bucket of gradients when it has at least this many bytes; 0: as "
             "*ddp.bucket_bytes* says, else 1048576, or *ddp.bucket_bytes* if that is smaller."},
    {KEY(ddp.bucket_bytes), CDDPI_KEY_LONG, "0", 0, 4 * GIB,
     .text = "Close each other bucket when it has at least this many bytes. 0: between hosts, "
             "this size, the first bucket's and *ddp.part_bytes* are computed from the link's "
             "measured latency and bandwidth, so that as little as possible is left to send when "
             "backward ends. They are computed again with the times of the first backward, "
             "unless a sharded optimizer continues from a checkpoint or belongs to a pipeline "
             "($CDDP_LOG=info shows it). On one host, on GPUs, or if you give one of the three: "
             "26214400. The results are the same."},
    {KEY(ddp.part_bytes), CDDPI_KEY_LONG, "0", 0, 4 * GIB,
     .text = "Cut larger gradients into parts of about this many bytes, at most 64, each in a "
             "bucket of its own: while one part is sent, the next is copied or converted "
             "(*ddp.wire*). 0: do not, or as *ddp.bucket_bytes* says. Never with "
             "*ddp.shard_optimizer*."},
    {KEY(ddp.wire), CDDPI_KEY_ENUM, "\"f32\"", CHOICES(CDDPI_WIRE_MAP),
     .text = "Type in which gradients are sent. *bf16* and *f16* send half of the bytes of f32; "
             "with *ddp.shard_optimizer*, three quarters, because updated parameters are still "
             "sent in their own type."},
    {KEY(ddp.allow_unused), CDDPI_KEY_BOOL, "false",
     .text = "Parameters may have no gradient in a step."},
    {KEY(ddp.deterministic), CDDPI_KEY_BOOL, "true",
     .text = "On GPUs: *true*: sums over ranks (in f32 for 16-bit types) and within attention, "
             "convolutions and products have a fixed order, so two runs give the same bits. "
             "*false*: the fastest order. On the CPU, the order is always fixed."},
    {KEY(ddp.shard_optimizer), CDDPI_KEY_BOOL, "true",
     .text = "Each rank updates its shard of the parameters, and keeps the optimizer's state of "
             "this shard only (ZeRO stage 1). The results are the same. After an update, ranks "
             "all-gather their shards; on GPUs in 16 bits, where products read them so "
             "(*train.precision*)."},

    {KEY(parallel.type), CDDPI_KEY_ENUM, "\"ranks\"", CHOICES(CDDPI_PARALLEL_TYPE_MAP),
     .text = "*ranks*: each rank has one device, with the whole model, or with one stage of it "
             "(*parallel.pipeline*). *model_parallel*: each rank divides the layers of the model "
             "among several devices (*train.devices*). *data_parallel*: each rank has copies of "
             "the model on several devices, as PyTorch's DataParallel has. See SEVERAL DEVICES."},
    {KEY(parallel.devices), CDDPI_KEY_TEXTS, "[]", ONLY(parallel.type, CDDPI_PARALLEL_DATA),
     .text = "The devices that have a copy of the model, written as in *train.devices* (a part "
             "of them, if both are given); none: *train.devices*. The first has the parameters."},
    {KEY(parallel.output_device), CDDPI_KEY_TEXT, "\"\"", ONLY(parallel.type, CDDPI_PARALLEL_DATA),
     .text = "The device that gathers the outputs and computes the loss; empty: the first."},
    {KEY(parallel.layers), CDDPI_KEY_TEXTS, "[]", ONLY(parallel.type, CDDPI_PARALLEL_DATA),
     .text = "Names of layers, written as in *parallel.placement*. Only these have copies; they "
             "must follow each other. Layers without parameters directly after them belong to "
             "them. All other layers, and the loss, are on the first device. None: all layers "
             "have copies."},
    {KEY(parallel.placement), CDDPI_KEY_TEXT, "\"\"", MODEL_PARALLEL,
     .text = "Which layers are on which device: \"layer1=cpu:0, fc=cpu:1\", or \"embedding=cpu, "
             "fc=cuda:0\". Name a layer by its name, by the beginning of names (*layer1* for "
             "*layer1.0.conv1* and so on), or by its number from 0. Layers without parameters "
             "that you do not name are with the layer before them."},
    {KEY(parallel.pipeline), CDDPI_KEY_INT, "1", 1, 4096,
     .text = "Divide the model into this many stages, each on a rank of its own. It must divide "
             "the world size; ranks with the same stage are replicas. 1: every rank has the "
             "whole model. See PIPELINES."},
    {KEY(parallel.schedule), CDDPI_KEY_ENUM, "\"1f1b\"", CHOICES(CDDPI_PIPELINE_SCHEDULE_MAP),
     .text = "The order of forwards and backwards. *1f1b*: each backward as early as possible, "
             "so the first stage keeps the activations of as many micro-batches as there are "
             "stages. *gpipe*: all forwards first, so each stage keeps the activations of all "
             "micro-batches. *interleaved*: like 1f1b, with several *parallel.chunks* on each "
             "rank, so that ranks wait less. *zero_bubble*: like 1f1b, but gradients of "
             "parameters are computed when a rank would wait (ZB-H1); later stages keep more."},
    {KEY(parallel.chunks), CDDPI_KEY_INT, "1", 1, CDDPI_TRAINER_CHUNKS,
     .text = "interleaved: chunks of layers on each rank; stages are dealt out to the ranks in "
             "this many rounds."},
    {KEY(parallel.micro_batches), CDDPI_KEY_LONG, "0", 0, 1 << 16,
     .text = "How many micro-batches a pipeline's share of a step is cut into; different stages "
             "work on different ones at the same time. 0: *train.accumulate*. With P stages and "
             "M micro-batches, each stage waits for (P - 1) / (M + P - 1) of the time; with "
             "zero_bubble, if its three passes take equally long, for (P - 1) / (3 M + P - 1)."},
    {KEY(parallel.stages), CDDPI_KEY_STAGES, "[]",
     .text = "The name of the first layer of each stage but the first. *auto*, or none: cddp "
             "chooses them when the run begins. A name also stands for the layers whose names "
             "begin with it and a dot. Two runs with the same division have the same bits. "
             "model_parallel: you can also give the first and the last layer of each device's "
             "stage: ( [\"input\", \"layer2\"], [\"layer3\", \"fc\"] )."},
    {KEY(parallel.balance), CDDPI_KEY_ENUM, "\"time\"", CHOICES(CDDPI_BALANCE_MAP),
     .text = "How cddp chooses stages. *time*: all take about equally long, as rank 0 measures. "
             "*memory*: the largest stage takes as little memory as possible: parameters, "
             "gradients, the optimizer's state (without *ddp.shard_optimizer*), and the outputs "
             "of layers for all micro-batches that the stage keeps."},
    {KEY(parallel.memory_bytes), CDDPI_KEY_LONG, "0", 0, 1e18,
     .text = "At most how much memory the stages of a rank may take, counted as for "
             "*parallel.balance* = *memory*; a stage that does not fit is an error that names "
             "it. 0: no limit."},
    {KEY(parallel.recompute), CDDPI_KEY_INTS, "[]", 0, 1 << 16,
     .text = "Stages, numbered from 0, that keep only the input of each block and compute the "
             "block again for backward; *model.recompute* does the same on all stages (gpt2, "
             "resnet18 to resnet50)."},

    {KEY(optimizer.type), CDDPI_KEY_ENUM, "\"sgd\"", CHOICES(CDDPI_OPTIM_TYPE_MAP),
     .text = "The rule that updates the parameters."},
    {KEY(optimizer.lr), CDDPI_KEY_REAL, "0.1", 0, 1e6,
     .text = "Learning rate: the highest of the schedule. adamw needs a far smaller one than "
             "sgd, such as 0.001."},
    {KEY(optimizer.momentum), CDDPI_KEY_REAL, "0.9", 0, 0.999999, SGD, .text = "sgd: momentum."},
    {KEY(optimizer.nesterov), CDDPI_KEY_BOOL, "false", SGD, .text = "sgd: Nesterov's momentum."},
    {KEY(optimizer.weight_decay), CDDPI_KEY_REAL, "0.0", 0, 1e3,
     .text = "sgd: this times the parameter is added to its gradient. adamw: decoupled weight "
             "decay."},
    {KEY(optimizer.decay_all), CDDPI_KEY_BOOL, "false",
     .text = "Apply weight decay also to biases, and to the weights of normalisation layers."},
    {KEY(optimizer.beta1), CDDPI_KEY_REAL, "0.9", 0, 0.999999, ADAMW,
     .text = "adamw: decay of the first moment."},
    {KEY(optimizer.beta2), CDDPI_KEY_REAL, "0.999", 0, 0.99999999, ADAMW,
     .text = "adamw: decay of the second moment."},
    {KEY(optimizer.epsilon), CDDPI_KEY_REAL, "1e-8", 1e-30, 1, ADAMW,
     .text = "adamw: added to the square root of the second moment."},
    {KEY(optimizer.discriminator_lr), CDDPI_KEY_REAL, "0.0", 0, 1e6, DCGAN,
     .text = "dcgan: the discriminator's learning rate; 0: *optimizer.lr*, which is also the "
             "generator's. The two networks have optimizers of their own, with all other keys in "
             "common."},
    {KEY(optimizer.schedule.type), CDDPI_KEY_ENUM, "\"constant\"", CHOICES(CDDPI_SCHEDULE_TYPE_MAP),
     .text = "How the learning rate changes after warm-up; *wsd*: it stays until the last "
             "*decay_steps* steps, and then falls."},
    {KEY(optimizer.schedule.warmup_steps), CDDPI_KEY_LONG, "0", 0, BIG,
     .text = "In this many steps, the learning rate rises linearly to *optimizer.lr*."},
    {KEY(optimizer.schedule.final_lr), CDDPI_KEY_REAL, "0.0", 0, 1e6, FALLING,
     .text = "linear, cosine, wsd: learning rate of the last step."},
    {KEY(optimizer.schedule.step_size), CDDPI_KEY_LONG, "1000", 1, BIG, IN_STEPS,
     .text = "step: after every N steps, counted from the end of warm-up, ..."},
    {KEY(optimizer.schedule.gamma), CDDPI_KEY_REAL, "0.1", 0, 1e3, IN_STEPS,
     .text = "step: ... the learning rate is multiplied by this."},
    {KEY(optimizer.schedule.total_steps), CDDPI_KEY_LONG, "0", 0, BIG, FALLING,
     .text = "linear, cosine, wsd: the step that has *final_lr*; 0: the last step of all epochs."},
    {KEY(optimizer.schedule.decay_steps), CDDPI_KEY_LONG, "0", 0, BIG, WSD,
     .text = "wsd: the learning rate falls in the last N steps; 0: in the last tenth of the "
             "steps."},
    {KEY(optimizer.schedule.decay), CDDPI_KEY_ENUM, "\"linear\"", CHOICES(CDDPI_SCHEDULE_DECAY_MAP),
     WSD,
     .text = "wsd: with x (0 to 1) of these steps done, the rate falls as 1 - x (*linear*) or as "
             "1 - sqrt(x) (*sqrt*)."},
};
const size_t cddpi_config_key_count = sizeof cddpi_config_keys / sizeof cddpi_config_keys[0];

_Static_assert(sizeof cddpi_config_keys / sizeof cddpi_config_keys[0] <= CDDPI_KEYS_MAX,
               "struct cddpi_config has a place for each key");
