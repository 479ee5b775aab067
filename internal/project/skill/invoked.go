package skill

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Bounds of a ledger.
const (
	PreviewLines = 20
	maxLine      = 500     // code points of a line of a preview
	maxPreview   = 4 << 10 // bytes of a preview
	maxInvoked   = 50      // skills; the longest unused is forgotten
	maxRestore   = 24 << 10
)

// Invoked is a skill that was used.
type Invoked struct {
	Name        string    `json:"name"`
	Path        string    `json:"path"`
	Preview     string    `json:"content_preview"` // its first [PreviewLines] lines
	LastInvoked time.Time `json:"last_invoked"`

	rules []string
}

// Ledger remembers the skills that one agent has used. The zero Ledger is
// empty and ready. Its methods may be called by several goroutines.
type Ledger struct {
	mu   sync.Mutex
	used []Invoked // the latest first; guarded by mu
}

// Record notes that a skill was used.
func (l *Ledger) Record(s Skill, at time.Time) {
	in := Invoked{Name: s.Name, Path: s.Path, Preview: preview(s.Body), LastInvoked: at}
	if s.Trusted {
		in.rules = slices.Clone(s.Allow)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used = slices.DeleteFunc(l.used, func(u Invoked) bool { return u.Path == s.Path })
	l.used = slices.Insert(l.used, 0, in)
	l.used = l.used[:min(len(l.used), maxInvoked)]
}

// GoOn takes over the skills that the previous agent of the conversation has used.
func (l *Ledger) GoOn(from *Ledger) {
	used := from.All()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used = used
}

// All returns the used skills, the latest first.
func (l *Ledger) All() []Invoked {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.used)
}

// Rules are the permission rules that hold because skills of trusted places
// were used: what they allow, they allow without a question.
func (l *Ledger) Rules() []string {
	var out []string
	for _, u := range l.All() {
		for _, r := range u.rules {
			if !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// Restore tells a model, whose conversation was cut, which skills it works by:
// the latest first. It is empty if none was used.
func (l *Ledger) Restore() string {
	used := l.All()
	if len(used) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(
		"Skills used in this session, the latest first. Each is shown by its beginning; read its file for the rest.\n",
	)
	for i, u := range used {
		text := fmt.Sprintf("\n## %s\nPath: %s\n\n%s\n", u.Name, escape(excerpt.Line(u.Path, 1000)), escape(u.Preview))
		if b.Len()+len(text) > maxRestore {
			fmt.Fprintf(&b, "\n(and %d used before these)\n", len(used)-i)
			break
		}
		b.WriteString(text)
	}
	return b.String()
}

// preview is the beginning of a skill, cut between lines.
func preview(body string) string {
	var b strings.Builder
	for i, line := range strings.Split(excerpt.Visible(body), "\n") {
		if r := []rune(line); len(r) > maxLine {
			line = string(r[:maxLine]) + "…"
		}
		if i == PreviewLines || b.Len()+len(line) > maxPreview {
			break
		}
		b.WriteString(line + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}
