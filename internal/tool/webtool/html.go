package webtool

import (
	"bytes"
	"html"
	"net/url"
	"strings"

	"github.com/tdewolff/parse/v2"
	lexer "github.com/tdewolff/parse/v2/html"
	"golang.org/x/net/html/atom"
)

// htmlText makes text of a page: headings, lists, links and code stay to be
// seen, scripts and styles go. It reads token by token and builds no tree, so
// that the work is linear however a page is nested.
func htmlText(page string, base *url.URL) string {
	l := lexer.NewLexer(parse.NewInputString(page))
	w := &writer{base: base}
	var open tag
	for {
		switch kind, _ := l.Next(); kind {
		case lexer.ErrorToken:
			return strings.TrimSpace(w.String()) + "\n"
		case lexer.TextToken:
			w.words(html.UnescapeString(string(l.Text())))
		case lexer.StartTagToken:
			open = tag{name: atom.Lookup(l.Text())}
		case lexer.AttributeToken:
			switch string(l.AttrKey()) {
			case "href":
				open.href = unquoted(l.AttrVal())
			case "alt":
				open.alt = unquoted(l.AttrVal())
			}
		case lexer.StartTagCloseToken, lexer.StartTagVoidToken:
			open.closed = kind == lexer.StartTagVoidToken
			w.start(open)
		case lexer.EndTagToken:
			w.end(atom.Lookup(l.Text()))
		}
	}
}

// tag begins an element.
type tag struct {
	name      atom.Atom
	href, alt string
	closed    bool // it has no content
}

// writer is the text so far.
type writer struct {
	b      bytes.Buffer
	base   *url.URL
	hidden atom.Atom // the element whose content is left out; 0: none
	depth  int       // of elements of that name
	pre    int
	gap    bool // a blank is due before the next word
	links  []link
	list   int
}

type link struct {
	at int // where it begins
	to string
}

// maxLinks bounds links in links, which only a broken page has.
const maxLinks = 16

func (w *writer) String() string { return w.b.String() }

func silent(a atom.Atom) bool {
	switch a {
	case atom.Script, atom.Style, atom.Noscript, atom.Template, atom.Svg, atom.Iframe, atom.Object, atom.Select,
		atom.Button, atom.Canvas, atom.Math:
		return true
	}
	return false
}

// breaks is how many lines end before and after an element.
func breaks(a atom.Atom) int {
	switch a {
	case atom.P, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Pre, atom.Table, atom.Blockquote, atom.Ul,
		atom.Ol, atom.Dl,
		atom.Section, atom.Article, atom.Header, atom.Footer, atom.Main, atom.Nav, atom.Aside, atom.Figure, atom.Form,
		atom.Title, atom.Hr:
		return 2
	case atom.Div, atom.Li, atom.Tr, atom.Dt, atom.Dd, atom.Br, atom.Option, atom.Figcaption, atom.Summary, atom.Details,
		atom.Caption:
		return 1
	}
	return 0
}

func (w *writer) start(t tag) {
	a := t.name
	if w.hidden != 0 {
		if a == w.hidden && !t.closed {
			w.depth++
		}
		return
	}
	if silent(a) {
		if !t.closed {
			w.hidden, w.depth = a, 1
		}
		return
	}
	w.newline(breaks(a))
	switch a {
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		w.put(strings.Repeat("#", int(a.String()[1]-'0')) + " ")
	case atom.Ul, atom.Ol:
		w.list++
	case atom.Li:
		w.put(strings.Repeat("  ", min(max(w.list-1, 0), 8)) + "- ")
	case atom.Td, atom.Th:
		if !w.atStart() {
			w.put(" | ")
		}
	case atom.Pre:
		w.put("```\n")
		w.pre++
	case atom.Hr:
		w.put("---\n")
	case atom.A:
		if to := w.absolute(t.href); to != "" && len(w.links) < maxLinks {
			w.blank()
			w.links = append(w.links, link{w.b.Len(), to})
		}
	case atom.Img:
		if alt := strings.TrimSpace(t.alt); alt != "" {
			w.words("[" + alt + "]")
		}
	}
}

func (w *writer) end(a atom.Atom) {
	if w.hidden != 0 {
		if a == w.hidden {
			if w.depth--; w.depth == 0 {
				w.hidden = 0
			}
		}
		return
	}
	switch a {
	case atom.Pre:
		if w.pre > 0 {
			w.pre--
			w.newline(1)
			w.put("```")
		}
	case atom.Ul, atom.Ol:
		w.list = max(0, w.list-1)
	case atom.A:
		w.endLink()
	}
	w.newline(breaks(a))
}

// endLink puts the address after the text of the link, if it has a text.
func (w *writer) endLink() {
	if len(w.links) == 0 {
		return
	}
	l := w.links[len(w.links)-1]
	w.links = w.links[:len(w.links)-1]
	if l.at > w.b.Len() {
		return
	}
	text := strings.TrimSpace(string(w.b.Bytes()[l.at:]))
	if text == "" || strings.Contains(text, "\n") || text == l.to {
		return // a block in a link stays as it is
	}
	w.b.Truncate(l.at)
	w.put("[" + text + "](" + l.to + ")")
}

// unquoted is the value of an attribute.
func unquoted(raw []byte) string {
	if n := len(raw); n > 1 && (raw[0] == '"' || raw[0] == '\'') && raw[n-1] == raw[0] {
		raw = raw[1 : n-1]
	}
	return html.UnescapeString(string(raw))
}

func (w *writer) absolute(ref string) string {
	u, err := w.base.Parse(strings.TrimSpace(ref))
	if ref == "" || err != nil || len(ref) > 2000 || u.Scheme != "http" && u.Scheme != "https" ||
		strings.HasPrefix(ref, "#") {
		return ""
	}
	return u.String()
}

func (w *writer) put(s string) {
	w.b.WriteString(s)
	w.gap = false
}

// words adds text, with runs of white space as one blank outside of pre.
func (w *writer) words(text string) {
	if w.hidden != 0 {
		return
	}
	if w.pre > 0 {
		w.put(text)
		return
	}
	fields := strings.Fields(text)
	if len(fields) == 0 {
		w.gap = w.gap || text != ""
		return
	}
	if strings.TrimLeft(text, " \t\r\n\f") != text {
		w.gap = true
	}
	w.blank()
	w.put(strings.Join(fields, " "))
	w.gap = strings.TrimRight(text, " \t\r\n\f") != text
}

// blank writes the blank that is due.
func (w *writer) blank() {
	if w.gap && !w.atStart() && !bytes.HasSuffix(w.b.Bytes(), []byte(" ")) {
		w.b.WriteByte(' ')
	}
	w.gap = false
}

func (w *writer) atStart() bool { return w.b.Len() == 0 || w.b.Bytes()[w.b.Len()-1] == '\n' }

// newline ends the line, and with 2 leaves an empty one.
func (w *writer) newline(n int) {
	if n == 0 || w.b.Len() == 0 {
		return
	}
	have := 0
	for data := w.b.Bytes(); have < n && have < len(data) && data[len(data)-1-have] == '\n'; {
		have++
	}
	w.put(strings.Repeat("\n", n-have))
}
