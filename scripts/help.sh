# --help, for every script that people start: prints the essay at its head. Sourced, before anything
# is done, and without dirname, which tests take away with all that is not needed.
case ${1:-} in
-h | --help)
    sed -n '2,/^[^#]/{ /^# shellcheck/d; s/^# \{0,1\}//p; }' "$0"
    exit 0
    ;;
esac
