// Data as training sees it: batches of token ids, in an order that is a pure function.
//
// Sample i of the endless training sequence depends on (seed, i) and the files alone. A step takes
// samples step * global_batch and on; which rank takes which of them is the caller's affair, and a
// run that resumes on another number of ranks goes on with the next sample. Nothing is drawn twice
// within an epoch, and no token of the validation part is ever in a training sample, as input or as
// target.
//
// Of several sources, each has its own epochs and order, and takes turns by its weight (mix.h).
// Examples of JSONL are packed into sequences (pack.h), and their masks say which targets count.
//
// To open data is to prepare them: what has to be fetched, encoded and packed is, before there are
// ranks, by one process of a machine. What it found (struct DataFound) lets others open the same
// data at once. From then on nothing changes; ranks read finished shards, each for itself.
//
// Called by train.c. Behind it: sources.h finds the files, prepare.h makes shards of text,
// examples.h of JSONL, shards.h reads them, order.h shuffles.
#ifndef DATA_TEXT_DATA_H
#define DATA_TEXT_DATA_H
#include "data/text/mix.h"
#include "data/text/tokenizer.h"
#include "kernels/batch.h"

struct Data;

// Whether examples share sequences; auto: they do.
enum Packing { PACK_AUTO, PACK_ON, PACK_OFF };

// What preparation has found out, for processes that find the same cache: words, so that they can
// be sent. Of text and JSONL each part has the number in the name of its prepared folder.
struct DataFound {
    uint64_t kind; // an enum SourceKind
    uint64_t fingerprint;
    uint64_t pieces; // of the tokenizer that fits the text; 0: it is bytes
    struct {
        uint64_t made[2], val_bytes;
    } source[MIX_SOURCES_MAX];
};

struct DataSpec {
    const char *data;      // see named.h and sources.h
    const char *val_data;  // NULL: the name's own, else the last tenth of each of `data`
    const char *tokenizer; // NULL: the folder's, else what fits the text (prepare.h); for ids
                           // the folder's, where it can be read, else none; see tokenizer.h
    const char *cache_dir; // NULL: cache_default_folder()
    size_t seq_len;        // tokens of a sample
    size_t vocab;          // 0: the tokenizer's; 50257 for shards and random ids without one
    uint64_t seed;         // of the order
    const char *model;     // the --init whose tokenizer a text needs; NULL: any will do
    const char *folder;    // where that model lies, maybe with its tokenizer; NULL: it has none
    bool seq_len_fits;     // seq_len is the default: data with fewer tokens may have a smaller
    // Not 0: nobody said seq_len, and documents have sequences as long as the longest of them, of
    // at most so many tokens, nor more than seq_len.
    size_t longest;
    enum Packing pack;
    const char *chat_template; // of JSONL: struct ChatSpec's name,
    const char *data_map;      // and its map
    int processes;             // that open the same data; 0: this one alone
    // How many training samples will be read, from number 0 on: so much is fetched of what is. Of
    // what is here, all can be read.
    uint64_t samples;
    const struct DataFound *found; // by another process; NULL: this one prepares
};

// Finds, fetches and prepares what the spec names; says on the log what takes long. Errors: -errno,
// with one line that names the flag or file, for everything that sources.h, prepare.h, tokens.h and
// download.h list, and for text too short for one sequence.
int data_open(struct Data **out, const struct DataSpec *spec, struct Error *e);
void data_close(struct Data *d); // NULL is allowed
void data_found(const struct Data *d, struct DataFound *found);

// Where the prepared or given files lie, in one line. free() it.
char *data_places(const struct Data *d);

// The vocabulary and the seq_len that data_open would find, and data_packed, without preparing any
// text. With a --tokenizer it is not even read, and seq_len taken for the spec's; of documents it
// is the most that it can be. spec->data may be NULL: random. Errors: those of data_open.
int data_predict(const struct DataSpec *spec, size_t *vocab, size_t *seq_len, bool *packed,
                 struct Error *e);

size_t data_vocab(const struct Data *d);
size_t data_seq_len(const struct Data *d);
// What a text got that had no --tokenizer, as that would say it, or NULL.
const char *data_fitted_tokenizer(const struct Data *d);
const struct Tokenizer *data_tokenizer(const struct Data *d); // never NULL; see TOKENIZER_IDS
const char *data_tokenizer_path(const struct Data *d);        // its .model file, or NULL
uint64_t data_train_tokens(const struct Data *d);             // of the shards that are here
uint64_t data_val_tokens(const struct Data *d);
uint64_t data_epoch_samples(const struct Data *d); // of all sources, and the shards that are here
bool data_packed(const struct Data *d); // sequences hold several documents: starts are wanted
uint64_t data_val_samples(const struct Data *d);

// A validation loss (nats a token) in bits per byte of the validation text, which is what compares
// tokenizers: loss / ln 2 * its tokens / its bytes. 0 where the text is not at hand, as with ids
// that others made.
double data_bits_per_byte(const struct Data *d, double loss);

// Tells one data set from another: files, split, tokenizer and seq_len. A checkpoint keeps it.
uint64_t data_fingerprint(const struct Data *d);

// `data` is a struct Data *: these two are what zero/rank/feed.h calls a BatchReader.
//
// Samples first .. first + n - 1 of the endless training sequence; batch: (n, seq_len). Errors:
// -EIO with the file's name for one that others have changed since it was opened; -EINVAL for an id
// outside of the vocabulary. This and those that follow may be called from several threads at once.
int data_train_batch(void *data, uint64_t first, size_t n, const struct Batch *batch,
                     struct Error *e);

// How many targets of those samples count, all of them where nothing has a mask. Reads no token.
// Errors: those of data_train_batch.
int data_train_counted(void *data, uint64_t first, uint64_t n, uint64_t *counted, struct Error *e);
int data_val_counted(void *data, uint64_t first, uint64_t n, uint64_t *counted, struct Error *e);

// Samples of the validation part, in order; first + n <= data_val_samples.
int data_val_batch(void *data, uint64_t first, size_t n, const struct Batch *batch,
                   struct Error *e);

// The ids of --prompt, at least one, with tokenizer_begin in front. `given`: the user's own; else
// id 0 will do where it has none. Errors: -EINVAL.
int data_prompt(const struct Data *d, const char *prompt, bool given, struct Ids *ids,
                struct Error *e);

// The text of ids, without what a terminal would obey. free() it.
char *data_printable(const struct Data *d, const int32_t *ids, size_t count);

#endif
