package policy

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// hereDocs says why bash may end a here-document of the line elsewhere than the
// parser does; what follows would then be commands for one of them and data for
// the other. Delimiters are plain, and their ends are looked for in the text.
func hereDocs(text string, file *syntax.File) (doubt string) {
	if !strings.Contains(text, "<<") {
		return ""
	}
	var docs []*syntax.Redirect
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Redirect:
			if n.Op == syntax.Hdoc || n.Op == syntax.DashHdoc {
				docs = append(docs, n)
			}
		case *syntax.CmdSubst:
			if n.Backquotes && strings.Contains(cut(text, n.Pos(), n.End()), "<<") {
				doubt = "a here-document between backquotes"
			}
		}
		return true
	})
	slices.SortFunc(docs, func(a, b *syntax.Redirect) int { return int(a.OpPos.Offset()) - int(b.OpPos.Offset()) })
	begun, ended, line := 0, 0, -1 // of the last body, and the end of the line that wants it
	for _, r := range docs {
		if doubt != "" {
			return doubt
		}
		delimiter, quoted, ok := plainDelimiter(r.Word)
		if !ok {
			return "a here-document whose delimiter is not a plain word"
		}
		op, word := int(r.OpPos.Offset()), int(r.Word.End().Offset())
		if begun <= op && op < ended {
			return "a here-document within another"
		}
		n := strings.IndexByte(text[word:], '\n')
		if n < 0 {
			return "a here-document without a body"
		}
		rest, start := text[word:word+n], word+n+1
		if line == start {
			start = ended
		} else {
			line = start
		}
		begun = start
		if ended, ok = bodyEnd(text, start, delimiter, quoted, r.Op == syntax.DashHdoc); !ok {
			return "a here-document without an end"
		}
		switch {
		case r.Hdoc == nil && (strings.ContainsAny(rest, "'\"`\\#") || strings.TrimLeft(text[start:ended],
			"\t") != text[ended-len(delimiter):ended]):
			doubt = "a here-document that may not be empty"
		case r.Hdoc != nil && (int(r.Hdoc.Pos().Offset()) != start || int(r.Hdoc.End().Offset()) != ended):
			doubt = "a here-document that may end elsewhere"
		}
		ended = min(ended+1, len(text))
	}
	return doubt
}

func cut(text string, from, to syntax.Pos) string {
	return text[min(int(from.Offset()), len(text)):min(int(to.Offset()), len(text))]
}

// plainDelimiter accepts a word of letters, digits and _ . - that is wholly quoted, or
// by one backslash before it, or not at all.
func plainDelimiter(w *syntax.Word) (text string, quoted, ok bool) {
	if w == nil || len(w.Parts) != 1 {
		return "", false, false
	}
	switch p := w.Parts[0].(type) {
	case *syntax.Lit:
		text, quoted = strings.CutPrefix(p.Value, `\`)
	case *syntax.SglQuoted:
		if quoted = true; !p.Dollar {
			text = p.Value
		}
	case *syntax.DblQuoted:
		if quoted = true; !p.Dollar {
			text = (&syntax.Word{Parts: p.Parts}).Lit()
		}
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
	return text, quoted, text != "" && strings.Trim(text, letters) == ""
}

// bodyEnd is where the line with the delimiter ends. A body that is not quoted has
// lines that continue in the next one: where that makes a difference it has no end.
func bodyEnd(text string, start int, delimiter string, quoted, tabs bool) (int, bool) {
	joined := ""
	for at := start; at <= len(text); {
		line, _, more := strings.Cut(text[at:], "\n")
		bare := line
		if tabs {
			bare = strings.TrimLeft(line, "\t")
		}
		whole := joined + bare
		switch {
		case bare == delimiter && whole == delimiter:
			return at + len(line), true
		case bare == delimiter:
			return 0, false
		case strings.TrimRight(bare, " \t\r)`") == delimiter:
			return 0, false // an end for some shells and in some places
		}
		joined = ""
		if slashes := len(line) - len(strings.TrimRight(line, `\`)); !quoted && slashes%2 == 1 {
			if joined = strings.TrimSuffix(whole, `\`); joined == "" || strings.HasPrefix(delimiter, joined) {
				return 0, false
			}
		}
		if !more {
			break
		}
		at += len(line) + 1
	}
	return 0, false
}
