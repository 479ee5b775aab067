package markdown

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"charm.land/lipgloss/v2"

	"github.com/drover-dev/drover/internal/frontend/tui/theme"
)

// language is what the scanner must know of a language.
type language struct {
	words   string   // keywords, between blanks
	line    []string // what begins a comment up to the end of the line
	open    string   // of a comment over several lines
	close   string
	quotes  string // characters around texts
	folds   bool   // keywords are written in capitals too
	verbose bool   // quotes may go over several lines
}

// languageOf finds a language by the info string of a fence or the extension of a file.
func languageOf(name string) (language, bool) {
	c := language{line: []string{"//"}, open: "/*", close: "*/", quotes: "\"'`"}
	hash := language{line: []string{"#"}, quotes: "\"'"}
	switch strings.ToLower(strings.TrimPrefix(name, ".")) {
	case "go", "golang":
		c.words = " break case chan const continue default defer else fallthrough for func go goto if import interface map " +
			"package range return select struct switch type var nil true false iota any bool byte error float64 int " +
			"int64 rune string uint64 "
		c.verbose = true
		return c, true
	case "js", "javascript", "ts", "typescript", "jsx", "tsx", "mjs":
		c.words = " async await break case catch class const continue default delete do else enum export extends false " +
			"finally for from function if implements import in instanceof interface let new null of private public readonly " +
			"return static super switch this throw true try type typeof undefined var void while yield "
		c.verbose = true
		return c, true
	case "c", "h", "cpp", "c++", "cc", "hpp", "java", "cs", "csharp", "kotlin", "kt", "swift", "scala", "php", "dart",
		"proto":
		c.words = " abstract auto bool boolean break byte case catch char class const continue default delete do double " +
			"else enum extends extern false final finally float for fun func function goto if implements import include int " +
			"interface let long namespace new null nullptr override package private protected public return short sizeof " +
			"static string struct super switch template this throw true try typedef union unsigned using val var virtual " +
			"void volatile while "
		return c, true
	case "rs", "rust":
		c.words = " as async await break const continue crate dyn else enum extern false fn for if impl in let loop match " +
			"mod move mut pub ref return self Self static struct super trait true type unsafe use where while "
		c.quotes = "\""
		return c, true
	case "py", "python":
		hash.words = " and as assert async await break class continue def del elif else except False finally for from " +
			"global if import in is lambda None nonlocal not or pass raise return True try while with yield "
		return hash, true
	case "rb", "ruby":
		hash.words = " begin break case class def do else elsif end ensure false for if in module next nil not or redo " +
			"rescue retry return self super then true unless until when while yield "
		return hash, true
	case "sh", "bash", "zsh", "shell", "console", "make", "makefile", "dockerfile", "docker":
		hash.words = " case do done elif else esac export fi for function if in local return set then until while " +
			"FROM RUN COPY ENV CMD ENTRYPOINT WORKDIR "
		hash.verbose = true
		return hash, true
	case "yaml", "yml", "toml", "ini", "conf", "nix", "hcl", "tf":
		hash.words = " true false null yes no on off "
		return hash, true
	case "json", "jsonc", "json5":
		return language{words: " true false null ", line: []string{"//"}, quotes: "\""}, true
	case "sql":
		return language{line: []string{"--"}, open: "/*", close: "*/", quotes: "'\"", folds: true,
			words: " add all alter and as asc begin between by case check column commit constraint create default delete desc " +
				"distinct drop else end exists foreign from group having if in index inner insert into is join key left " +
				"like limit not null offset on or order outer primary references right rollback select set table then " +
				"union unique update values view when where with "}, true
	case "html", "xml", "svg", "vue":
		return language{open: "<!--", close: "-->", quotes: "\"'"}, true
	case "css", "scss":
		return language{open: "/*", close: "*/", quotes: "\"'"}, true
	case "lua":
		return language{line: []string{"--"}, quotes: "\"'", words: " and break do else elseif end false for function if " +
			"in local nil not or repeat return then true until while "}, true
	}
	return language{}, false
}

// Highlight colours source code. The text stays the same.
func Highlight(t theme.Theme, name, source string) string {
	name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
	if name == "diff" || name == "patch" {
		return diff(t, source)
	}
	l, ok := languageOf(name)
	if !ok {
		return source
	}
	s := scanner{language: l, theme: t, rest: source}
	for s.rest != "" {
		s.next()
	}
	return s.out.String()
}

func diff(t theme.Theme, source string) string {
	lines := strings.Split(source, "\n")
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "@@"):
			lines[i] = t.Hunk.Render(line)
		case strings.HasPrefix(line, "+"):
			lines[i] = t.Added.Render(line)
		case strings.HasPrefix(line, "-"):
			lines[i] = t.Removed.Render(line)
		}
	}
	return strings.Join(lines, "\n")
}

// scanner goes once through a source.
type scanner struct {
	language
	theme theme.Theme
	rest  string
	out   strings.Builder
}

// take writes the next n bytes, each line of them with its own style.
func (s *scanner) take(n int, style lipgloss.Style) {
	for i, line := range strings.Split(s.rest[:n], "\n") {
		if i > 0 {
			s.out.WriteByte('\n')
		}
		s.out.WriteString(render(style, line))
	}
	s.rest = s.rest[n:]
}

// next takes one token.
func (s *scanner) next() {
	for _, mark := range s.line {
		if strings.HasPrefix(s.rest, mark) {
			n := strings.IndexByte(s.rest, '\n')
			if n < 0 {
				n = len(s.rest)
			}
			s.take(n, s.theme.Comment)
			return
		}
	}
	if s.open != "" && strings.HasPrefix(s.rest, s.open) {
		n := strings.Index(s.rest, s.close)
		if n < 0 {
			n = len(s.rest) - len(s.close)
		}
		s.take(n+len(s.close), s.theme.Comment)
		return
	}
	c, size := utf8.DecodeRuneInString(s.rest)
	switch {
	case strings.ContainsRune(s.quotes, c):
		s.take(s.quoted(c), s.theme.String)
	case unicode.IsDigit(c):
		s.take(s.run(func(r rune) bool { return wordy(r) || r == '.' }), s.theme.Number)
	case unicode.IsLetter(c) || c == '_':
		n := s.run(wordy)
		word := s.rest[:n]
		if s.folds {
			word = strings.ToLower(word)
		}
		if strings.Contains(s.words, " "+word+" ") {
			s.take(n, s.theme.Keyword)
			return
		}
		s.out.WriteString(s.rest[:n])
		s.rest = s.rest[n:]
	default:
		s.out.WriteString(s.rest[:size])
		s.rest = s.rest[size:]
	}
}

func wordy(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }

// run is how many bytes from here on hold characters of a sort only.
func (s *scanner) run(of func(rune) bool) int {
	return len(s.rest) - len(strings.TrimLeftFunc(s.rest, of))
}

// quoted is the length of a text in quotes, which ends with its line unless texts may
// go over several.
func (s *scanner) quoted(quote rune) int {
	for i := 1; i < len(s.rest); i++ {
		switch c := s.rest[i]; {
		case c == '\\' && quote != '`' && i+1 < len(s.rest) && s.rest[i+1] != '\n':
			i++
		case c == '\n' && quote != '`' && !(s.verbose && quote == '"' && strings.Contains(s.words, " esac ")):
			return i
		case rune(c) == quote:
			return i + 1
		}
	}
	return len(s.rest)
}
