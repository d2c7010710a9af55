#!/usr/bin/env python3
"""Writes keys and values of public configurations, for tests/data/test_deepspeed_public.c.

    scripts/gen/deepspeed_public.py PROJECT=FOLDER... >tests/fixtures/deepspeed/public.txt

FOLDER has a copy of a public project. Of each the first four configurations are taken, in the order
of their paths: JSON objects that ask for zero_optimization or a batch size, without placeholders,
each content once. What a file says of its place (project, path), the ranks that its batch sizes and
its tensor parallelism ask for (else 1), then every key with its value. The third word is the
verdict, "?" here: write "trains", or "refused" and a part of the line that says why.
"""
import json
import pathlib
import sys

FEW = 4
ASKS = {"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu"}


def configurations(folder):
    for path in sorted(pathlib.Path(folder).rglob("*.json")):
        try:
            found = json.loads(path.read_text())
        except (ValueError, OSError):
            continue
        if isinstance(found, dict) and ASKS & set(found):
            yield path.relative_to(folder).as_posix(), found


def number(found, key):
    value = found.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def ranks(found):
    all_ = number(found, "train_batch_size")
    micro = number(found, "train_micro_batch_size_per_gpu")
    steps = number(found, "gradient_accumulation_steps") or 1
    data = max(1, int(all_ / (micro * steps))) if all_ and micro else 1
    return data * (number(found.get("tensor_parallel", {}), "autotp_size") or 1)


def lines(value, path):
    if not isinstance(value, dict) or not value:
        yield f"  {path} {json.dumps(value)}"
        return
    for key, inner in value.items():
        if "." in key or " " in key:
            sys.exit(f"{path}.{key}: no path can say this key")
        yield from lines(inner, f"{path}.{key}" if path else key)


def main():
    if len(sys.argv) < 2 or any("=" not in a for a in sys.argv[1:]):
        sys.exit(__doc__.split("\n\n")[1].strip())
    seen = set()
    print("# Keys and values of public configurations for DeepSpeed, by "
          "scripts/gen/deepspeed_public.py:\n# verdict, ranks, project, path; then the keys.")
    for project, folder in (a.split("=", 1) for a in sorted(sys.argv[1:])):
        taken = 0
        for path, found in configurations(folder):
            content = json.dumps(found, sort_keys=True)
            if taken == FEW or content in seen:
                continue
            seen.add(content)
            taken += 1
            print(f"? {ranks(found)} {project} {path}")
            print("\n".join(lines(found, "")))


if __name__ == "__main__":
    main()
