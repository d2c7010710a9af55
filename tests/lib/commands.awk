# Prints the commands that a bash script names, each as "FILE COMMAND", functions as "FILE NAME()":
#
#   awk -f tests/lib/commands.awk FILE
#
# A file is first reduced to its code: comments, here-documents and the insides of quotes go, and
# what $(...) runs becomes code of its own. In code, a word that stands where a command may stand is
# one; what a variable or a path names is not. This is not all of bash's grammar, but what the
# scripts here use of it: a command that it makes up belongs to no package, and so is noticed.
# tests/scripts/test_tools.sh compares the commands with what scripts/setup.sh installs.

function push(kind) {
    stack[++depth] = kind
    if (kind == "code")
        code[depth] = ""
}
# Characters of code go to the innermost $(...) that is open, or to the script itself.
function emit(characters,    d) {
    for (d = depth; d > 1 && stack[d] != "code"; d--)
        if (stack[d] != "paren")
            return
    code[d] = code[d] characters
}
function pop(    kind) {
    kind = stack[depth]
    if (kind == "code")
        chunk[++chunks] = code[depth]
    depth--
    return kind
}

# One character in single quotes, double quotes, ${...}, $((...)) or an array's words. Returns 0
# where what begins here begins the same way in code.
function take_inside(top, c) {
    if (top == "plain") {
        if (c == "'")
            pop()
        return 1
    }
    if (c == "\\") {
        at++
        return 1
    }
    if (top == "words" && is_comment())
        return 0
    if (substr(text, at, 2) ~ /^[$][({]/ || (c == "\"" && top != "quoted"))
        return 0
    if (c == "'" && top == "words")
        return 0
    if ((top == "quoted" && c == "\"") || (top == "braces" && c == "}") ||
        ((top == "sum" || top == "words") && c == ")"))
        pop()
    else if (top == "sum" && c == "(")
        push("sum")
    return 1
}

function is_comment() {
    return substr(text, at, 1) == "#" && (at == 1 || substr(text, at - 1, 1) ~ /[ \t\n(;]/)
}

function take(    c, two, top) {
    c = substr(text, at, 1)
    two = substr(text, at, 2)
    top = stack[depth]
    if (top != "code" && top != "paren" && take_inside(top, c))
        return
    if (c == "\\") {
        emit(substr(text, at + 1, 1) == "\n" ? " " : "_")
        at++
    } else if (substr(text, at, 3) == "$((" || two == "((") {
        emit("$")
        at += (two == "((") ? 1 : 2
        push("sum")
        push("sum")
    } else if (two == "$(" || two == "<(" || two == ">(") {
        emit("$")
        at++
        push("code")
    } else if (two == "${") {
        emit("$")
        at++
        push("braces")
    } else if (c == "\"" || c == "'") {
        emit("$")
        push(c == "'" ? "plain" : "quoted")
    } else if (two == "=(") {
        emit("=")
        at++
        push("words")
    } else if (two == "()") {
        emit(two)
        at++
    } else if (c == "(") {
        emit(" ; ")
        push("paren")
    } else if (c == ")" && (top == "paren" || depth > 1)) {
        if (pop() == "paren")
            emit(" ; ")
    } else if (is_comment()) {
        while (at < length(text) && substr(text, at + 1, 1) != "\n")
            at++
    } else {
        emit(c)
    }
}

function is_plain_word(word) { return word ~ /^[a-zA-Z_][a-zA-Z0-9_.+-]*$/ }

# Words after which, and signs after which, a command follows; programs that run another one.
BEGIN {
    split("if then else elif do while until ! time { ; | & && || |& ;; ;& }", list, " ")
    for (i in list)
        before[list[i]] = 1
    split("env exec timeout nice xargs setsid command sudo eval strace", list, " ")
    for (i in list)
        runner[list[i]] = 1
}

function print_commands(part,    n, i, word, here, skip, pattern, words) {
    gsub(/[0-9]*[<>]&[0-9-]*|&>/, " ", part) # redirections, of which some hold &
    gsub(/;;|&&|\|\||\|&|[;|&]/, " & ", part)
    gsub(/\n/, " ; ", part)
    n = split(part, words, /[ \t]+/)
    here = 1
    for (i = 1; i <= n; i++) {
        word = words[i]
        if (word == "")
            continue
        if (pattern) { # of a case, to its parenthesis
            if (word ~ /\)$/) {
                pattern = 0
                here = 1
            } else if (word == "esac")
                pattern = 0
        } else if (word == ";;") {
            pattern = 1
        } else if (word == "case") {
            in_case = 1
            here = 0
        } else if (word == "in" && in_case) {
            in_case = 0
            pattern = 1
        } else if (word == "[[") {
            while (i < n && words[i] != "]]")
                i++
            here = 0
        } else if (word == "for" || word == "select") {
            while (i < n && words[i] !~ /^(;|do)$/)
                i++
            here = 1
        } else if (word ~ /^[;&]/ || (here && word in before)) {
            here = 1
        } else if (word ~ /\(\)$/) {
            print FILENAME, word
            here = 1
        } else if (here) {
            if (word ~ /^[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=/ || word ~ /^[0-9]*[<>]/) {
                if (word ~ /^[0-9]*[<>]+$/)
                    i++
                continue
            }
            if (is_plain_word(word))
                print FILENAME, word
            here = 0
            if (!(word in runner))
                continue
            while (i < n && (words[i + 1] ~ /^(-.*|[0-9.]+[a-z]?|[A-Z]+)$/ || words[i + 1] ~ /=/)) {
                i++
                if (words[i] ~ /^-[usk]$/) # a name, a signal, a time
                    i++
            }
            here = i < n && words[i + 1] !~ /^[$]/
        }
    }
}

END {
    push("code")
    for (at = 1; at <= length(text); at++)
        take()
    chunk[++chunks] = code[1]
    for (i = 1; i <= chunks; i++)
        print_commands(chunk[i])
}

until_word != "" {
    line = $0
    sub(/^\t+/, "", line)
    if (line == until_word)
        until_word = ""
    next
}
{
    text = text $0 "\n"
    if ($0 !~ /^[ \t]*#/ && match($0, /<<-?['"]?[A-Za-z_]+/)) {
        until_word = substr($0, RSTART, RLENGTH)
        gsub(/[<'"-]/, "", until_word)
        if (substr($0, RSTART - 1, 1) == "<" || substr($0, RSTART, 3) == "<<<")
            until_word = ""
    }
}
