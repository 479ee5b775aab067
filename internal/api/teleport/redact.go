package teleport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// Secret is a value that must not be exported, with the name of its variable.
type Secret struct{ Name, Value string }

// leastSecret is the minimum length of a value to search for: a short one occurs in any text by
// chance.
const leastSecret = 8

// IsSecret reports whether a variable of this name probably holds a secret.
func IsSecret(name string) bool {
	name = strings.ToUpper(name)
	for _, word := range []string{"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "COOKIE"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	for _, end := range []string{"_PASS", "_PWD", "_AUTH"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// Secrets returns the secrets of an environment, and the variables with the given names.
func Secrets(env []string, more ...string) []Secret {
	var out []Secret
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if IsSecret(name) && !strings.HasSuffix(strings.ToUpper(name), "_FILE") || slices.Contains(more, name) {
			out = append(out, Secret{name, value})
		}
	}
	return out
}

// Redactor replaces secrets by marks. Its zero value replaces none.
type Redactor struct {
	find [][]byte // longest first
	mark [][]byte
	n    int // number of replacements
}

// NewRedactor returns what replaces the values of secrets that have at least 8 bytes.
func NewRedactor(secrets []Secret) *Redactor {
	r := &Redactor{}
	type pair struct{ find, mark []byte }
	var pairs []pair
	for _, s := range secrets {
		if len(s.Value) < leastSecret {
			continue
		}
		mark := []byte("[left out: " + s.Name + "]")
		for _, form := range written(s.Value) {
			pairs = append(pairs, pair{[]byte(form), mark})
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(len(b.find), len(a.find)) })
	for _, p := range pairs {
		r.find, r.mark = append(r.find, p.find), append(r.mark, p.mark)
	}
	return r
}

// written returns a value in all forms in which Drover's files may have it: as it is, as JSON
// with and without escapes for HTML, and as JSON within JSON.
func written(value string) []string {
	forms := []string{value}
	for range 2 {
		for _, form := range forms {
			for _, html := range []bool{true, false} {
				if next := quoted(form, html); !slices.Contains(forms, next) {
					forms = append(forms, next)
				}
			}
		}
	}
	return forms
}

// quoted returns a text as JSON, without the quotes around it.
func quoted(text string, html bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	_ = e.Encode(text) // encoding a text cannot fail
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
}

// Text replaces secrets in a whole text, also where they are in JSON, or in JSON within JSON.
func (r *Redactor) Text(data []byte) []byte {
	for i, find := range r.find {
		if n := bytes.Count(data, find); n > 0 {
			r.n += n
			data = bytes.ReplaceAll(data, find, r.mark[i])
		}
	}
	return data
}

// copyPart is the size of a read.
const copyPart = 1 << 20

// copy replaces secrets in a stream, including those that lie across two reads.
func (r *Redactor) copy(w io.Writer, in io.Reader) error {
	if len(r.find) == 0 {
		_, err := io.Copy(w, in)
		return err
	}
	longest := len(r.find[0])
	var held []byte
	buf := make([]byte, copyPart)
	for {
		n, err := io.ReadFull(in, buf)
		held = append(held, buf[:n]...)
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return err
		}
		ready, from := r.cut(held, longest, last)
		if _, err := w.Write(ready); err != nil {
			return err
		}
		held = append([]byte(nil), held[from:]...)
		if last {
			return nil
		}
	}
}

// cut replaces secrets in the beginning of the buffer, up to where an incomplete secret may
// begin. It returns that beginning, and its original length.
func (r *Redactor) cut(held []byte, longest int, last bool) ([]byte, int) {
	until := len(held)
	if !last {
		until = max(0, len(held)-longest+1)
	}
	var out []byte
	at := 0
	for at < until {
		next, which := -1, 0
		for i, find := range r.find {
			if k := bytes.Index(held[at:], find); k >= 0 && (next < 0 || at+k < next) {
				next, which = at+k, i
			}
		}
		if next < 0 || next >= until {
			break
		}
		out = append(append(out, held[at:next]...), r.mark[which]...)
		at = next + len(r.find[which])
		r.n++
	}
	if at < until {
		out = append(out, held[at:until]...)
		at = until
	}
	return out, at
}
