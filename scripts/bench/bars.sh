#!/usr/bin/env bash
# Stacked bars as SVG and PNG, by gnuplot: a part of memory_table.sh, which sources it.
#
# It wants $work, a folder to work in, $out, where pictures go, $name, theirs, and die. Panel P of a
# picture is $work/bars.P, a line "x|name|value value ...|label above" per bar, and $work/groups.P,
# "x|name" below the bars.

# picture TITLE YLABEL PANEL_TITLES LEGEND [WIDTH KEY]: titles and legend separated by "|"; KEY says
# where in the last panel the legend stands.
picture() {
    command -v gnuplot >/dev/null || {
        echo "memory_table.sh: gnuplot is missing: no pictures" >&2
        return
    }
    local terminal width=${5:-1200} kind
    for kind in svg png; do
        terminal=${kind/png/pngcairo}
        terminal+=" size $width,700 font 'DejaVu Sans,13' background rgb 'white'"
        {
            echo "set terminal $terminal"
            echo "set output '$work/picture.$kind'"
            panels "$@"
        } >"$work/script"
        gnuplot "$work/script" 2>"$work/errors" ||
            die "gnuplot failed: $(tr '\n' ' ' <"$work/errors")"
        mv "$work/picture.$kind" "$out/memory_$name.$kind"
        echo "$out/memory_$name.$kind" >&2
    done
}

panels() { # the gnuplot commands of all panels
    awk -v title="$1" -v ylabel="$2" -v panel_titles="$3" -v legend="$4" -v work="$work" \
        -v key="${6:-at graph 0.5,1.1 horizontal center}" '
        BEGIN {
            split("#1f5fa8 #e08a1e #2d8a4e #8a3f9e #b0b0b0 #c8301e", color, " ")
            panels = split(panel_titles, panel_title, "|")
            segments = split(legend, segment, "|")
            print "set multiplot layout 1," panels " title \"" title "\" font \",17\""
            print "set style fill solid 1.0 border rgb \"white\"\nset border 3 lc rgb \"#666666\""
            print "set tics nomirror out textcolor rgb \"#333333\"\nset xtics scale 0"
            print "set grid ytics lt 1 lw 0.7 lc rgb \"#dddddd\"\nset ylabel \"" ylabel "\""
            print "set bmargin 6\nset tmargin 5\nunset key"
            for (p = 1; p <= panels; p++) panel(p)
            print "unset multiplot"
        }
        function panel(p,    line, field, v, n, i, at, bars, tics, most, file, low, high, last) {
            bars = most = 0
            tics = ""
            print "unset label"
            while ((getline line < (work "/bars." p)) > 0) {
                split(line, field, "|")
                n = split(field[3], v, " ")
                at = field[1]
                tics = tics (bars++ ? "," : "") "\"" field[2] "\" " at
                low = 0
                for (i = 1; i <= segments; i++) {
                    file = work "/segment." p "." i
                    high = low + (i <= n ? v[i] : 0)
                    print at, low, high >file
                    low = high
                }
                if (low > most) most = low
                print "set label \"" field[4] "\" at " at "," low \
                    " center offset 0,0.7 font \",10\""
                last = at
            }
            while ((getline line < (work "/groups." p)) > 0) {
                split(line, field, "|")
                print "set label \"" field[2] "\" at " field[1] ",graph -0.115 center"
            }
            for (i = 1; i <= segments; i++) close(work "/segment." p "." i)
            print "set title \"" panel_title[p] "\""
            print "set xtics (" tics ")\nset xrange [0.2:" last + 0.8 "]"
            print "set yrange [0:" most * 1.1 "]"
            if (p == 2) print "unset ylabel"
            if (p == panels) print "set key Left reverse spacing 1.3 samplen 1.5 " key
            for (i = 1; i <= segments; i++)
                plot = (i == 1 ? "plot " : plot ", ") "\"" work "/segment." p "." i "\"" \
                    " using 1:2:($1-0.43):($1+0.43):2:3 with boxxyerror lc rgb \"" color[i] \
                    "\" title \"" segment[i] "\""
            print plot
        }'
}
