// The shim over SentencePiece: see spm.h. No exception leaves this file.
//
// Three points need care:
//  - The library writes a space as U+2581 inside its pieces, so a U+2581 in the text itself would
//    come back as a space. Such a character is spelled in bytes here, around the library.
//  - The library reads a text as one sentence, in memory many times its size. So text is passed in
//    stretches that end with a line; as a newline is a piece of its own, the ids are the same.
//  - A model may add a space at the front of every sentence, and fold runs of spaces: a stream has
//    neither. Protocol buffers merge a message that occurs twice, so six bytes after the model
//    switch both off. This file adds the space at the front of a whole text.
#include "data/text/spm.h"
extern "C" {
#define _Noreturn [[noreturn]]
#include "kernels/base.h"
#undef _Noreturn
}

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

using std::string;
using std::string_view;

namespace {

constexpr string_view SPACE = "\xe2\x96\x81";                // U+2581, the library's space
constexpr string_view STREAM("\x1a\x04\x18\x00\x20\x00", 6); // no dummy prefix, spaces kept
constexpr size_t STRETCH_BYTES = 16384; // of text, passed to the library at once
constexpr size_t LINE_BYTES = 4096;     // longest sentence in training
constexpr size_t TRAINING_BYTES = 16 << 20;

// Returns the readable part of a message of the library, after a source line and a condition in
// brackets.
string message_of(const sentencepiece::util::Status &status) {
    string text = status.ToString();
    size_t at = text.rfind("] ");
    return at == string::npos || at + 2 == text.size() ? text : text.substr(at + 2);
}

// Returns an offset at or before `wanted` (above 0) where `text` may be cut: after a newline, else
// before a space, else between two characters.
size_t find_cut(string_view text, size_t wanted) {
    if (wanted >= text.size())
        return text.size();
    size_t at = text.rfind('\n', wanted - 1);
    if (at != string_view::npos)
        return at + 1;
    at = text.rfind(' ', wanted);
    if (at != string_view::npos && at > 0)
        return at;
    at = wanted;
    while (at > 1 && (text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

// Iterates over the lines of the text, without newlines; over evenly spread ones if it is large.
class Lines : public sentencepiece::SentenceIterator {
  public:
    explicit Lines(string_view text) : rest(text), every(text.size() / TRAINING_BYTES + 1) {
        Next();
    }
    bool done() const override { return finished; }
    const string &value() const override { return line; }
    sentencepiece::util::Status status() const override { return {}; }
    void Next() override {
        for (bool skip = true; skip;) {
            finished = rest.empty();
            if (finished)
                return;
            size_t end = find_cut(rest.substr(0, rest.find('\n')), LINE_BYTES);
            line = rest.substr(0, end);
            rest.remove_prefix(end);
            if (!rest.empty() && rest[0] == '\n')
                rest.remove_prefix(1);
            skip = line.empty() || count++ % every != 0;
        }
    }

  private:
    string_view rest;
    string line;
    size_t every, count = 0;
    bool finished = false;
};

} // namespace

struct Spm {
    sentencepiece::SentencePieceProcessor processor;
    string subject;               // what opens an error line: "--tokenizer NAME"
    std::vector<string> bytes_of; // id -> its bytes
    int space_bytes[3];           // the byte pieces that spell U+2581, or -1 without byte pieces
    bool adds_space;              // a text gets a space at its front
};

static int train_model(string_view text, size_t pieces, string *model, struct Error *e) {
    // Words never reach across a space or a newline; a digit is a piece of its own, so that numbers
    // are spelled the same way wherever they stand.
    const std::unordered_map<string, string> options = {
        {"model_type", "bpe"},
        {"vocab_size", std::to_string(pieces)},
        {"byte_fallback", "true"},
        {"character_coverage", "0.9999"},
        {"normalization_rule_name", "identity"},
        {"add_dummy_prefix", "false"},
        {"remove_extra_whitespaces", "false"},
        {"allow_whitespace_only_pieces", "true"},
        {"split_digits", "true"},
        {"user_defined_symbols", "\n"},
        {"max_sentence_length", std::to_string(2 * LINE_BYTES)},
        {"num_threads", "1"},
        {"unk_id", "0"},
        {"bos_id", "-1"},
        {"eos_id", "-1"},
        {"pad_id", "-1"},
        {"minloglevel", "3"},
    };
    Lines lines(text);
    const auto status = sentencepiece::SentencePieceTrainer::Train(options, &lines, model);
    if (status.ok())
        return 0;
    return error_set(e, -EINVAL, E_SENTENCEPIECE_TRAIN,
                     "--tokenizer train:%zu: SentencePiece cannot make %zu pieces of this text of "
                     "%zu bytes: %s; give more text, or a smaller train:N",
                     pieces, pieces, text.size(), message_of(status).c_str());
}

static void fill_bytes_of_ids(struct Spm *s) {
    int n = s->processor.GetPieceSize();
    for (int id = 0; id < n; id++) {
        string piece = s->processor.IdToPiece(id), bytes;
        if (s->processor.IsByte(id)) {
            bytes.push_back((char)strtol(piece.c_str() + 3, nullptr, 16)); // <0x41>
        } else if (s->processor.IsUnknown(id)) {
            bytes = "\xef\xbf\xbd"; // U+FFFD
        } else if (!s->processor.IsControl(id)) {
            for (size_t i = 0; i < piece.size();) {
                bool space = piece.compare(i, SPACE.size(), SPACE) == 0;
                bytes.push_back(space ? ' ' : piece[i]);
                i += space ? SPACE.size() : 1;
            }
        }
        s->bytes_of.push_back(bytes);
    }
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned char)SPACE[(size_t)i]);
        int id = s->processor.PieceToId(name);
        s->space_bytes[i] = s->processor.IsByte(id) ? id : -1;
    }
}

static int encode_stretch(const struct Spm *s, string_view text, struct Ids *ids, struct Error *e) {
    std::vector<int> found;
    const auto status = s->processor.Encode(text, &found);
    if (!status.ok())
        return error_set(e, -EINVAL, E_SENTENCEPIECE,
                         "%s: SentencePiece cannot encode the text: %s; give another tokenizer",
                         s->subject.c_str(), message_of(status).c_str());
    for (int id : found)
        ids_append(ids, id);
    return 0;
}

static int encode_text(const struct Spm *s, string_view text, bool begins, struct Ids *ids,
                       struct Error *e) {
    int code = 0;
    if (begins && s->adds_space && !text.empty()) {
        size_t end = find_cut(text, STRETCH_BYTES), special = text.substr(0, end).find(SPACE);
        end = s->space_bytes[0] >= 0 && special < end ? special : end;
        string first(" ");
        first += text.substr(0, end);
        code = encode_stretch(s, first, ids, e);
        text.remove_prefix(end);
    }
    while (!code && !text.empty()) {
        size_t end = find_cut(text, STRETCH_BYTES);
        size_t special =
            s->space_bytes[0] < 0 ? string_view::npos : text.substr(0, end).find(SPACE);
        if (special == 0) {
            for (int id : s->space_bytes)
                ids_append(ids, id);
            text.remove_prefix(SPACE.size());
            continue;
        }
        end = special < end ? special : end;
        code = encode_stretch(s, text.substr(0, end), ids, e);
        text.remove_prefix(end);
    }
    return code;
}

static int open_model(struct Spm *s, string_view model, const char *name, struct Error *e) {
    string bytes(model);
    s->adds_space = spm_adds_space(model.data(), model.size());
    spm_drop_self_test(bytes.data(), bytes.size());
    bytes += STREAM;
    const auto status = s->processor.LoadFromSerializedProto(bytes);
    if (!status.ok())
        return error_set(e, -EINVAL, E_SENTENCEPIECE,
                         "--tokenizer %s: SentencePiece refuses it: %s; give another tokenizer",
                         name, message_of(status).c_str());
    fill_bytes_of_ids(s);
    return 0;
}

// Turns an exception of the library (std::bad_alloc, Darts' own) into an error line, which begins
// with `subject`.
template <typename Action>
static int guarded(struct Error *e, const char *subject, const char *doing, Action action) {
    try {
        return action();
    } catch (const std::bad_alloc &) {
        return error_set(
            e, -ENOMEM, E_MEMORY_REFUSED,
            "%s: out of memory: SentencePiece got no more while %s; end other programs", subject,
            doing);
    } catch (const std::exception &x) {
        return error_set(e, -EINVAL, E_SENTENCEPIECE,
                         "%s: SentencePiece failed while %s: %s; give another tokenizer", subject,
                         doing, x.what());
    } catch (...) {
        return error_set(
            e, -EINVAL, E_SENTENCEPIECE,
            "%s: SentencePiece failed while %s, and gives no reason; give another tokenizer",
            subject, doing);
    }
}

int spm_train(const char *text, size_t text_bytes, size_t pieces, char **model, size_t *model_bytes,
              struct Error *e) {
    char subject[64];
    snprintf(subject, sizeof subject, "--tokenizer train:%zu", pieces);
    return guarded(e, subject, "training", [&] {
        string bytes;
        int code = train_model(string_view(text, text_bytes), pieces, &bytes, e);
        if (code)
            return code;
        *model = (char *)base_alloc(bytes.size());
        *model_bytes = bytes.size();
        memcpy(*model, bytes.data(), bytes.size());
        return 0;
    });
}

int spm_open(struct Spm **out, const char *model, size_t model_bytes, const char *name,
             struct Error *e) {
    *out = nullptr;
    int code = spm_check_model(model, model_bytes, name, e);
    if (code)
        return code;
    char subject[ERROR_TEXT_BYTES];
    snprintf(subject, sizeof subject, "--tokenizer %s", name);
    struct Spm *s = nullptr;
    code = guarded(e, subject, "opening a model", [&] {
        s = new Spm;
        s->subject = subject;
        return open_model(s, string_view(model, model_bytes), name, e);
    });
    if (code)
        spm_close(s);
    else
        *out = s;
    return code;
}

void spm_close(struct Spm *s) {
    delete s;
}

size_t spm_vocab(const struct Spm *s) {
    return s->bytes_of.size();
}

int spm_encode(const struct Spm *s, const char *text, size_t text_bytes, bool begins,
               struct Ids *ids, struct Error *e) {
    return guarded(e, s->subject.c_str(), "encoding",
                   [&] { return encode_text(s, string_view(text, text_bytes), begins, ids, e); });
}

int32_t spm_begin(const struct Spm *s) {
    return s->processor.bos_id();
}

int32_t spm_end(const struct Spm *s) {
    return s->processor.eos_id();
}

int32_t spm_control(const struct Spm *s, const char *text) {
    int id = s->processor.PieceToId(text);
    return s->processor.IsControl(id) ? id : -1;
}

const char *spm_name(const struct Spm *s, size_t id) {
    CHECK(id < s->bytes_of.size(), "id %zu of %zu", id, s->bytes_of.size());
    return s->processor.IdToPiece((int)id).c_str();
}

const char *spm_piece(const struct Spm *s, size_t id, size_t *bytes) {
    CHECK(id < s->bytes_of.size(), "id %zu of %zu", id, s->bytes_of.size());
    *bytes = s->bytes_of[id].size();
    return s->bytes_of[id].data();
}
