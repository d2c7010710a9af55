# The result of one test, for a test program in Python that speaks TAP, as tests/lib/tap.sh is for
# shell scripts. At the end the program says `tap.finish()`.
import sys

count = failed = 0


def result(good, name, seen=""):
    """One test: whether it passed, its name, and what was seen if it did not."""
    global count, failed
    count += 1
    print("%s %d - %s" % ("ok" if good else "not ok", count, name), flush=True)
    if not good:
        failed += 1
        print("".join("# %s\n" % line for line in str(seen).splitlines()), end="")


def raises(kind, call):
    """What an error of this kind says that the call raises; None where it raises none."""
    try:
        call()
    except kind as e:
        return str(e)
    return None


def finish():
    print("1..%d" % count)
    sys.exit(failed > 0)
