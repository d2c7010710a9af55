# A browser that needs no screen: source this file, with folder set. It is one that opens files of
# $folder: Ubuntu's chromium is a snap, which sees neither /tmp nor what lies below a dot.
# shellcheck shell=bash
# shellcheck disable=SC2154

# Sets browser to the first that shows a page of $folder; false if there is none.
find_browser() {
    local name
    echo '<p id=said></p><script>document.getElementById("said").textContent = 6 * 7</script>' >"$folder/tried.html"
    for name in chromium chromium-browser google-chrome; do
        browser=$(command -v $name) || continue
        dump_page "$folder/tried.html" | grep -q '>42</p>' && return
    done
    return 1
}

# What a page is when its scripts have run.
dump_page() { # dump_page FILE
    HOME=$folder timeout 120 "$browser" --headless --no-sandbox --disable-gpu --window-size=1400,900 \
        --user-data-dir="$folder/browser" --dump-dom "file://$1" 2>"$folder/browser_said"
}
