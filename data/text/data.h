// The data of a run: batches of token ids, in an order that is a pure function.
//
// Sample i of the endless training sequence depends on (seed, i) and the files alone. A step takes
// samples step * global_batch and on; the caller distributes them over ranks, so a run that resumes
// on another number of ranks continues with the next sample. Nothing is drawn twice within an
// epoch, and no token of the validation part is ever in a training sample, as input or as target.
//
// Each of several sources has its own epochs and order; they take turns by their weights (mix.h).
// Examples of JSONL are packed into sequences (pack.h), and have masks of the targets that count.
//
// Opening data prepares them: one process of a machine fetches, encodes and packs them before there
// are ranks. Its result (struct DataFound) lets other processes open the same data at once. From
// then on nothing changes; each rank reads finished shards.
//
// Called by train.c. Next: sources.h finds the files, prepare.h makes shards of text, examples.h of
// JSONL, shards.h reads them, order.h shuffles.
#ifndef DATA_TEXT_DATA_H
#define DATA_TEXT_DATA_H
#include "data/text/mix.h"
#include "data/text/tokenizer.h"
#include "kernels/batch.h"

struct Data;

// --pack: examples share sequences (auto and on), or have one each (off).
enum Packing { PACK_AUTO, PACK_ON, PACK_OFF };

// The result of preparation, for processes with the same cache: 64-bit words, which are sent. For
// text and JSONL, `made` has the numbers in the names of the prepared folders.
struct DataFound {
    uint64_t kind; // an enum SourceKind
    uint64_t fingerprint;
    uint64_t pieces; // of the tokenizer that fits the text; 0: bytes
    struct {
        uint64_t made[2], val_bytes;
    } source[MIX_SOURCES_MAX];
};

struct DataSpec {
    const char *data;      // see named.h and sources.h
    const char *val_data;  // NULL: the source's own, else the last tenth of each of `data`
    const char *tokenizer; // NULL: the folder's, else one that fits the text (prepare.h); for ids
                           // the folder's, if it can be read, else none; see tokenizer.h
    const char *cache_dir; // NULL: cache_default_folder()
    size_t seq_len;        // tokens of a sample
    size_t vocab;          // 0: the tokenizer's; 50257 for shards and random ids without one
    uint64_t seed;         // of the order
    const char *model;     // the --init whose tokenizer a text needs; NULL: any will do
    const char *folder;    // that model's folder, maybe with its tokenizer; NULL: it has none
    bool seq_len_fits;     // seq_len is the default: short data may have shorter sequences
    // Not 0: seq_len is the default, and sequences of documents are as long as the longest
    // document, but no longer than this and seq_len.
    size_t longest;
    enum Packing pack;
    const char *chat_template; // of JSONL: struct ChatSpec's name,
    const char *data_map;      // and its map
    int processes;             // the number that open the same data; 0: this one alone
    // The training samples that will be read, from number 0 on: only their shards are fetched. Of
    // local files, all can be read.
    uint64_t samples;
    const struct DataFound *found; // by another process; NULL: this one prepares
};

// Finds, fetches and prepares the data of the spec; logs slow parts. Errors: -errno, with one line
// that names the flag or file, for everything that sources.h, prepare.h, tokens.h and download.h
// list, and for text too short for one sequence.
int data_open(struct Data **out, const struct DataSpec *spec, struct Error *e);
void data_close(struct Data *d);                                // NULL is allowed
void data_found(const struct Data *d, struct DataFound *found); // for other processes

// Returns a line with the first path of each part's files, and how many follow it. free() it.
char *data_places(const struct Data *d);

// Predicts the vocabulary and seq_len that data_open would find, and data_packed, without preparing
// any text. With a --tokenizer the text is not even read, and seq_len is the spec's; for documents
// it is an upper bound. spec->data may be NULL: random. Errors: those of data_open.
int data_predict(const struct DataSpec *spec, size_t *vocab, size_t *seq_len, bool *packed,
                 struct Error *e);

size_t data_vocab(const struct Data *d);
size_t data_seq_len(const struct Data *d);
// Returns the tokenizer that was chosen without --tokenizer, as a value of that flag, or NULL.
const char *data_chosen_tokenizer(const struct Data *d);
const struct Tokenizer *data_tokenizer(const struct Data *d); // never NULL; see TOKENIZER_IDS
const char *data_tokenizer_path(const struct Data *d);        // of its file, or NULL
uint64_t data_train_tokens(const struct Data *d);             // of the shards that are open
uint64_t data_val_tokens(const struct Data *d);
uint64_t data_epoch_samples(const struct Data *d); // of all sources, and the shards that are open
bool data_packed(const struct Data *d); // sequences hold several documents: Batch.starts is needed
uint64_t data_val_samples(const struct Data *d);

// Returns a validation loss (nats a token) in bits per byte of the validation text, which compares
// tokenizers: loss / ln 2 * its tokens / its bytes. 0: the text is unknown, as with token shards.
double data_bits_per_byte(const struct Data *d, double loss);

// Returns a hash of the data: files, split, tokenizer and seq_len. A checkpoint stores it.
uint64_t data_fingerprint(const struct Data *d);

// `data` is a struct Data *: data_train_batch and data_val_batch are a BatchReader of
// zero/rank/feed.h.
//
// Reads samples first .. first + n - 1 of the endless training sequence; batch: (n, seq_len).
// Errors: -EIO with the file's name if it has changed since it was opened; -EINVAL for an id
// outside of the vocabulary. This and the functions below may be called from several threads at
// once.
int data_train_batch(void *data, uint64_t first, size_t n, const struct Batch *batch,
                     struct Error *e);

// Counts the targets of those samples that count: all of them without a mask. Reads no token.
// Errors: those of data_train_batch.
int data_train_counted(void *data, uint64_t first, uint64_t n, uint64_t *counted, struct Error *e);
int data_val_counted(void *data, uint64_t first, uint64_t n, uint64_t *counted, struct Error *e);

// Reads samples of the validation part, in order; first + n <= data_val_samples.
int data_val_batch(void *data, uint64_t first, size_t n, const struct Batch *batch,
                   struct Error *e);

// Appends the ids of --prompt, after tokenizer_begin. If there are none, appends id 0, or with
// `given` (the user gave the prompt) fails. Errors: -EINVAL.
int data_prompt(const struct Data *d, const char *prompt, bool given, struct Ids *ids,
                struct Error *e);

#endif
