#!/usr/bin/env python3
"""Makes tests/fixtures/packed with Python's gzip and zstandard: packed files, and what Python says.

  scripts/gen/packed_fixtures.py      needs zstandard (pip install zstandard); no network

NAME.gz and NAME.zst hold text.txt, packed in ways that others pack. verdicts.txt has a line for
each, "FILE CUT FLIPPED GARBAGE": one letter for each byte of the file, what Python makes of the
first so many bytes of it, of the file with that byte's lowest bit turned over, and of the file with
a byte behind it (of 256). "=": the text; "x": an error; "-": another text without an error.
"""
import gzip
import io
import os
import random
import struct
import zlib

import zstandard

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                      "tests/fixtures/packed")


def text():
    r = random.Random(7)
    words = "to be or not that is the question whether tis nobler in mind é € 🙂".split(" ")
    return "".join(r.choice(words) + r.choice(["\n", " ", " "]) for _ in range(300)).encode()


def member(data, level=9, flags=0, extra=b"", name=b"", comment=b""):
    """A member of gzip by RFC 1952, with the parts of its header that Python does not write."""
    head = struct.pack("<BBBBIBB", 0x1f, 0x8b, 8, flags, 0, 0, 3)
    head += struct.pack("<H", len(extra)) + extra if flags & 4 else b""
    head += name + b"\0" if flags & 8 else b""
    head += comment + b"\0" if flags & 16 else b""
    head += struct.pack("<H", zlib.crc32(head) & 0xffff) if flags & 2 else b""
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    body = packer.compress(data) + packer.flush()
    return head + body + struct.pack("<II", zlib.crc32(data), len(data))


def frame(data, level=3, **settings):
    return zstandard.ZstdCompressor(level=level, **settings).compress(data)


def unpack_gz(data):
    return gzip.GzipFile(fileobj=io.BytesIO(data)).read()


def unpack_zst(data):
    """All frames; an end inside of one, or other bytes behind it, are refused."""
    out, any_frame = b"", False
    while data or not any_frame:
        if len(data) >= 8 and struct.unpack("<I", data[:4])[0] & 0xfffffff0 == 0x184d2a50:
            size = struct.unpack("<I", data[4:8])[0]
            if len(data) < 8 + size:
                raise ValueError("cut short")
            data, any_frame = data[8 + size:], True
            continue
        reader = zstandard.ZstdDecompressor().decompressobj()
        out += reader.decompress(data)
        if not reader.eof:
            raise ValueError("cut short")
        data, any_frame = reader.unused_data, True
    return out


def verdict(unpack, data, whole):
    try:
        return "=" if unpack(data) == whole else "-"
    except Exception:  # whatever a library raises for such
        return "x"


def main():
    whole = text()
    half = len(whole) // 2
    stream = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()
    unsized = stream.compress(whole) + stream.flush()
    files = {
        "plain.gz": gzip.compress(whole, 9, mtime=0),
        "stored.gz": gzip.compress(whole, 0, mtime=0),
        "members.gz": member(whole[:half]) + member(b"") + member(whole[half:], 1),
        "header.gz": member(whole, 6, 2 | 4 | 8 | 16, b"AB\2\0xy", b"text.txt", b"a comment"),
        "padded.gz": gzip.compress(whole, 9, mtime=0) + bytes(100),
        "plain.zst": frame(whole),
        "checked.zst": frame(whole, 19, write_checksum=True),
        "unsized.zst": unsized,
        "frames.zst": frame(whole[:half]) + frame(b"") + frame(whole[half:], 19),
        "skipped.zst": b"\x50\x2a\x4d\x18\4\0\0\0abcd" + frame(whole) + b"\x5f\x2a\x4d\x18\0\0\0\0",
    }
    lines = []
    os.makedirs(FOLDER, exist_ok=True)
    for name, data in files.items():
        unpack = unpack_gz if name.endswith(".gz") else unpack_zst
        assert unpack(data) == whole, name
        cut = "".join(verdict(unpack, data[:i], whole) for i in range(len(data)))
        flipped = "".join(verdict(unpack, data[:i] + bytes([data[i] ^ 1]) + data[i + 1:], whole)
                          for i in range(len(data)))
        garbage = "".join(verdict(unpack, data + bytes([b]), whole) for b in range(256))
        lines.append(f"{name} {cut} {flipped} {garbage}\n")
        with open(os.path.join(FOLDER, name), "wb") as f:
            f.write(data)
    with open(os.path.join(FOLDER, "text.txt"), "wb") as f:
        f.write(whole)
    with open(os.path.join(FOLDER, "verdicts.txt"), "w", encoding="ascii") as f:
        f.writelines(lines)


main()
