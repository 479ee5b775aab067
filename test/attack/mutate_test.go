//go:build linux && (amd64 || arm64)

package attack

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// maker makes lines out of those of a corpus. The same number always gives the
// same line.
type maker struct {
	c   corpus
	rng *rand.Rand
}

// one is a line and what it is judged by.
type one struct {
	At      int    `json:"at"`
	Line    string `json:"line"`
	Set     string `json:"set"`
	Fixture string `json:"fixture,omitempty"`
}

// line makes the line of a number. The first ones are those of the corpus, each
// by its own rules.
func (c corpus) line(start uint64, at int, whole bool) (one, ruleset) {
	general := c.More
	if !whole {
		general -= len(wide)
	}
	if at < len(c.Seeds) {
		s := c.Seeds[at]
		if c.Sets[s.Set].all() && !whole {
			s.Set = 0
		}
		return one{at, s.Line, c.Sets[s.Set].Text, s.Fixture}, c.Sets[s.Set]
	}
	m := maker{c, rand.New(rand.NewPCG(start, uint64(at)))}
	s := m.seed()
	n := s.Set
	if m.rng.IntN(3) > 0 || c.Sets[n].all() && !whole {
		n = m.rng.IntN(general)
	}
	o := one{At: at, Set: c.Sets[n].Text, Fixture: s.Fixture}
	switch m.rng.IntN(20) {
	case 0, 1:
		o.Line = m.soup()
	case 4, 5, 6:
		o.Line = m.optioned()
		for range m.rng.IntN(2) {
			o.Line = m.change(o.Line)
		}
	case 2:
		o.Line = m.hereDoc()
	case 7:
		o.Line = s.Line
	case 3:
		o.Line = m.spliced(s.Line)
	default:
		o.Line = s.Line
		for range 1 + m.rng.IntN(4) {
			o.Line = m.change(o.Line)
		}
	}
	if len(o.Line) > 2000 {
		o.Line = o.Line[:2000]
	}
	return o, c.Sets[n]
}

func (m maker) seed() seed { return m.c.Seeds[m.rng.IntN(len(m.c.Seeds))] }

func (m maker) pick(of ...string) string { return of[m.rng.IntN(len(of))] }

func (m maker) oneOf(list []string) string { return list[m.rng.IntN(len(list))] }

// What may do harm, as a word, an option or a file.
var (
	options = strings.Fields(`-o -i -n -e -f -c -x -O -w -r -R -l -p -d -z -t -v -s -a -u -g -S -L -T -D -C -G -F -H -- - --output=PWNED -oPWNED -exec
 PWNED --pre=./payload.sh --compress-prog=./payload.sh --in-place --textconv --ext-diff --filters -delete -fprint ./payload.sh 1e $x * ./* ?
 a.txt src 2>&1 <a.txt HEAD -C evil.git --paginate -P 1 --plugin=./payload.sh @args --files0-from=a.txt -X -ok -fls -ls --file=a.txt --help
 --version --open-files-in-pager=./payload.sh -O./payload.sh --no-index --upload-pack=./payload.sh --exec=./payload.sh +1 +e e ax -T. --from-file=a.txt
 --lines=1 -K -Z --diff-program=./payload.sh --exclude-from=a.txt -I./payload.sh`)
	places = strings.Fields(`.env secrets/k secrets ~/.ssh/id ~/.netrc ../outside ../proj-evil link-out link-env /etc/passwd ~ ~+ ~- ~+/.env ~-/outside ~root
 ~someone . .. / ./.env .e* .en? s*/k sec* {.env,} $PWD/.env /proc/self/environ /dev/tcp/127.0.0.1/80 /dev/stdin :/ :(top) :(top).env :/.env :!a.txt
 :(exclude)a.txt :(glob)** HEAD:.env HEAD:secrets/k flags/* flags/@args @flags/args .git/config .git/hooks/pre-commit .envrc .github/workflows/x.yml`)
	settings = strings.Fields(`x=PWNED x=-o x=.env x=secrets PATH=. PATH=$PWD:$PATH IFS=x LC_ALL=C TZ=UTC PAGER=./payload.sh LESSOPEN=|./payload.sh GIT_PAGER=./payload.sh
 GIT_EXTERNAL_DIFF=./payload.sh BASH_ENV=./payload.sh ENV=./payload.sh LD_PRELOAD=./x.so MANPAGER=./payload.sh EDITOR=./payload.sh PS4=$(touch${IFS}PWNED)
 BASH_FUNC_ls%%=x HOME=/ CDPATH=.. GREP_OPTIONS=-r TAR_OPTIONS=-x LESS=-oPWNED a=1 _=x SHELLOPTS=xtrace OPTIND=1 BASH_XTRACEFD=1 POSIXLY_CORRECT=1 PS_FORMAT=environ`)
	frames = []string{"(%)", "{ %; }", "if %; then :; fi", "for i in a.txt src; do %; done", "% | cat", "cat a.txt | %", "! %", "time %", "nice %",
		"timeout 5 %", "echo \"$(%)\"", "cat <(%)", "while %; do break; done", "cd src && %", "cd src; %", "command %", "nohup %", "stdbuf -oL %",
		"[[ -f a.txt ]] && %", "case a in a) %;; esac", "cat <<EOF\n$(%)\nEOF", "% <<'EOF'\nw PWNED\nEOF", "read -r x < a.txt; %", "set -e; %",
		"x=secrets; cd $x; %", "cd flags; %", "cd flags && % *", "for x in *; do % $x; done", "for x in flags/*; do %; done", "% &", "% & wait",
		"until ! %; do :; done", "time -p %", "command -p %", "printf %n PATH; %", "echo `%`", "echo \"`%`\"", "coproc %", "f() { %; }; f", "select x in a; do %; done",
		"trap '%' EXIT", "eval '%'", "[ -v 'a[$(%)]' ]", "test x -eq 'a[$(%)]'", "echo $(( a[$(%)] ))", "echo ${x:-$(%)}", "cd - && %", "pushd src; %",
		"% <<E\nx\nE\ntouch PWNED", "cat <<-E\n\t$(%)\n\tE", "x=$(%); echo $x", "exec %", "env %", "xargs % < list.txt", "% 2>&1 | head -1", "source <(%)"}
	tails = []string{"> PWNED", ">> PWNED", "2> PWNED", ">&2", "&> /dev/null", ">| PWNED", "< a.txt", "<<< x", "2>/dev/null", "; touch PWNED", "| sh",
		"| tee PWNED", "# x", "-o PWNED", "PWNED", "<<E\nE\n", "&& touch PWNED", "< .env", "< ~+/.env", "< /dev/tcp/127.0.0.1/9", "> .git/hooks/x", "<> PWNED",
		"3> PWNED", "{fd}> PWNED", ">&PWNED", "> \"$x\"", "> /dev/tcp/127.0.0.1/9", "<<\"\"E\ntouch PWNED\nE", "<<'E'E\nE\ntouch PWNED\nEE\n"}
	strangers = []string{`\`, "''", `""`, "\\\n", "$''", "*", "?", "[", "{,}", "=", "\u200b", "\t", "\n", ";", "&", "|", "#", "$x", "~", "!", "%", ":", "/", "-",
		"\r", "\u00a0", "\v", "\f", "\u2028", "ｅ", "é", "{", "}", "(", ")", "<", ">", "`", "$(", "${", "@", "+", ",", "\\\\", "\\\\\n", "\x7f", "$'\\n'", "$'\\x2d'", "$\""}
)

// change makes one change of a line.
func (m maker) change(line string) string {
	ws := strings.Split(line, " ")
	i := m.rng.IntN(len(ws))
	w := ws[i]
	cut := m.rng.IntN(len(w) + 1)
	switch m.rng.IntN(24) {
	case 0:
		ws[i] = m.oneOf(strangers) + w
	case 1:
		ws[i] = m.pick("'%'", `"%"`, "$'%'", `$"%"`, "{%,}", "{,%}", "`echo %`", "$(echo %)", "\\%", "%*", "~/%", "./%", "%/.", "\"%", "'%", "%\"", "${x:-%}", "<(%)")
		ws[i] = strings.ReplaceAll(ws[i], "%", w)
	case 2, 3:
		ws[i] = w[:cut] + m.oneOf(strangers) + w[cut:]
	case 4:
		ws[i] = m.escaped(w)
	case 5:
		if strings.HasPrefix(w, "--") && len(w) > 4 {
			name, value, ok := strings.Cut(w, "=")
			ws[i] = name[:min(len(name), 3+m.rng.IntN(len(name)-2))]
			if ok {
				ws[i] += m.pick("=", " ") + value
			}
		}
	case 6:
		k := m.rng.IntN(len(ws))
		ws[i], ws[k] = ws[k], ws[i]
	case 7:
		ws = slices.Delete(ws, i, i+1)
	case 8, 9:
		ws = slices.Insert(ws, i, m.oneOf(options))
	case 10:
		ws = slices.Insert(ws, i, m.oneOf(places))
	case 11:
		ws[i] = m.oneOf(places)
	case 12:
		ws = []string{line + m.pick(" && ", " || ", "; ", " | ", "\n", " & ", " |& ") + m.seed().Line}
	case 13, 14:
		return strings.ReplaceAll(m.oneOf(frames), "%", line)
	case 15:
		return m.oneOf(settings) + m.pick(" ", "; ", " && ") + line
	case 16:
		return line + " " + m.oneOf(tails)
	case 17: // cluster
		if i+1 < len(ws) && strings.HasPrefix(w, "-") && strings.HasPrefix(ws[i+1], "-") {
			ws[i] += strings.TrimLeft(ws[i+1], "-")
			ws = slices.Delete(ws, i+1, i+2)
		}
	case 18: // split
		if len(w) > 2 && w[0] == '-' && w[1] != '-' {
			ws[i] = w[:2] + m.pick(" ", " -") + w[2:]
		}
	case 19:
		if other := strings.Fields(m.seed().Line); len(other) > 0 {
			ws[i] = m.oneOf(other)
		}
	case 20: // another program with the same words
		ws[0] = m.oneOf(m.c.Heads)
	case 21:
		if len(w) > 1 { // a word of letters that an option may have
			ws[i] = "-" + string("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"[m.rng.IntN(62)]) + m.pick("", "PWNED", "./payload.sh", w)
		}
	case 22:
		return m.hereDocAround(line)
	case 23:
		return strings.ReplaceAll(line, " ", m.pick("  ", "\t", " \\\n", "\t \t", " \r", "\u3000"))
	}
	return strings.Join(ws, " ")
}

// escaped writes a word another way.
func (m maker) escaped(w string) string {
	var b strings.Builder
	for _, c := range []byte(w) {
		switch m.rng.IntN(6) {
		case 0:
			b.WriteString("\\" + string(rune(c)))
		case 1:
			fmt.Fprintf(&b, "$'\\x%x'", c)
		case 2:
			fmt.Fprintf(&b, "$'\\%03o'", c)
		case 3:
			b.WriteString("\"" + string(rune(c)) + "\"")
		case 4:
			b.WriteString("\\\n" + string(rune(c)))
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// spliced is a piece of one line within another.
func (m maker) spliced(line string) string {
	other := m.seed().Line
	if line == "" || other == "" {
		return line + other
	}
	from := m.rng.IntN(len(other))
	at := m.rng.IntN(len(line))
	return line[:at] + other[from:from+m.rng.IntN(len(other)-from)] + line[at:]
}

// optioned is a program with options that are known of it, in values and operands
// that may do harm.
func (m maker) optioned() string {
	p := m.c.Options[m.rng.IntN(len(m.c.Options))]
	value := func() string {
		return m.pick("PWNED", "./payload.sh", "a.txt", "1", "5", "x", "e", "n", "PWNED,x", "@args", "%n", "'|./payload.sh'", "src", "HEAD", "never", "always", "c", "%s", "a=1", ".")
	}
	ws := []string{p.Head}
	for range m.rng.IntN(4) {
		if len(p.Options) == 0 {
			break
		}
		o := m.oneOf(p.Options)
		switch {
		case strings.HasSuffix(o, "="):
			o = m.pick(o+value(), strings.TrimSuffix(o, "=")+" "+value(), strings.TrimSuffix(o, "="))
		case strings.HasSuffix(o, " "):
			o = m.pick(o+value(), strings.TrimSuffix(o, " ")+value(), strings.TrimSuffix(o, " "))
		case len(o) == 2 && len(ws) > 1 && m.rng.IntN(3) == 0 && len(ws[len(ws)-1]) == 2:
			ws[len(ws)-1] += o[1:]
			continue
		}
		ws = append(ws, o)
	}
	for range m.rng.IntN(3) {
		ws = append(ws, m.pick("a.txt", "b.txt", "src", "a.tar", ".", "-", "*.txt", "HEAD", "x", "5", "PWNED", "hello", "'s/a/b/'", "'{print}'", "list.txt", "flags/*", m.oneOf(places)))
	}
	line := strings.Join(ws, " ")
	return m.pick(line, line, line, line+" < a.txt", "cat a.txt | "+line, "cd flags; "+line+" *")
}

// soup is a line of pieces of the language, with a command hidden in it.
func (m maker) soup() string {
	pieces := []string{"echo", "cat", "ls", "a.txt", "touch PWNED", "(touch PWNED)", "$(touch PWNED)", "`touch PWNED`", "$", "(", ")", "{", "}",
		"`", "\"", "'", "\\", "\n", "\\\n", ";", "&", "|", "<", ">", "#", "!", "*", "[", "]", "=", "~", ",", "x", "-", ":-",
		"<<EOF\n", "\nEOF\n", "<<'EOF'\n", "<<-EOF\n\t", "<<<", "$((", "))", "${x", "${x:-", "${#x}", "$'", "$\"", "[[", "]]", "if", "then",
		"fi", "for i in", "do", "done", "case x in", "esac", ";;", "x)", "1", "2>&1", "/dev/null", "x=", "$x", "\"$x\"", "\t", "\r", "&&",
		"||", "|&", "&>", ">&", "<(", "<&", "{a,b}", "\\$", "\\`", "\\\"", "true"}
	var b strings.Builder
	b.WriteString(m.pick("echo ", "cat ", "true ", ""))
	for range 3 + m.rng.IntN(9) {
		b.WriteString(m.oneOf(pieces))
		if m.rng.IntN(3) > 0 {
			b.WriteByte(' ')
		}
	}
	if !strings.Contains(b.String(), "touch") {
		b.WriteString(m.pick("\n", ";", "\nEOF\n", " ") + "touch PWNED")
	}
	return b.String()
}

// delimiters of here-documents in every form that somebody might write.
var delimiters = []string{"E", "'E'", `"E"`, `\E`, `E\F`, "$'E'", `$"E"`, "E''", "''E", `""E`, "'E'F", "E'F'", `"a\"b"`, `$'a\x62'`, "''", `""`, `"E F"`, "E$x", "$x", "${x}",
	"$(x)", "`x`", "E\\\nF", "{a,b}", "~", "E*", "'a\nb'", "\\", "\\\\", "é", "E.F", "E-F", "-E", "E)", "\"E`\"", "E#", "#E", "!", "\"$x\"", "'$x'", "E\"\"F", "E=1", "<E", "1"}

// hereDoc is a here-document whose end is in doubt.
func (m maker) hereDoc() string {
	d := m.oneOf(delimiters)
	bare := strings.NewReplacer("'", "", `"`, "", `\`, "", "$", "", "\n", "").Replace(d)
	ends := []string{d, bare, `a"b`, `a\"b`, "ab", `a\x62`, "E", "EF", "\tE", " E", "E ", "E)", "\\", "", "x", "$(cat <<E\nE\n)", "`", "\\E", "E\\", "E\\\nF", "$x", "'E'", "\"E\"", "E\r"}
	var b strings.Builder
	b.WriteString(m.pick("cat <<", "cat <<-", "cat << ", "cat <<E <<", "cat a.txt - <<", "echo $(cat <<", "{ cat <<", "cat 0<<", "cat <<'X'\nX\ncat <<") + d)
	b.WriteString(m.pick("\n", "\n", "\n", " | cat\n", ";\n", " \\\n\n", " # x\n", " &\n"))
	for range 1 + m.rng.IntN(5) {
		b.WriteString(m.pick("x", "touch PWNED", "$(touch PWNED)", "echo hi", m.oneOf(ends), m.oneOf(ends), m.oneOf(ends)) + m.pick("\n", "\n", "\n", "\\\n"))
	}
	b.WriteString(m.oneOf(ends) + "\n" + m.pick("touch PWNED", "", ")", "}", "echo end; touch PWNED") + "\n" + m.oneOf(ends) + "\n" + m.pick("", ")", "; }"))
	return b.String()
}

func (m maker) hereDocAround(line string) string {
	d := m.oneOf(delimiters)
	return m.pick("cat", "echo", "cat a.txt |", "wc") + " <<" + d + "\n" + m.pick("x", "$(x)", "\\") + "\n" +
		m.pick(d, strings.Trim(d, `'"\`), "E") + "\n" + line + "\n" + m.pick(d, strings.Trim(d, `'"\`), "E", "")
}
