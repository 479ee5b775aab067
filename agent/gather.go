package agent

import "strings"

const (
	gatherPiece = 32 << 10 // bytes that are gathered before they stand still
	gatherAlone = 4 << 10  // bytes of a part that is kept as it came
)

// Gathered is a text that comes in parts. However long it becomes, no part of it is copied
// again and again, and a long part not at all until the text is whole. The zero value is
// the empty text. It must not be copied.
type Gathered struct {
	still []string
	size  int // of those
	last  strings.Builder
}

// Add puts a part behind the others.
func (g *Gathered) Add(part string) {
	if g.last.Len() > 0 && (len(part) >= gatherAlone || g.last.Len() >= gatherPiece) {
		g.keep(g.last.String())
		g.last = strings.Builder{}
	}
	if len(part) >= gatherAlone {
		g.keep(part)
		return
	}
	g.last.WriteString(part)
}

func (g *Gathered) keep(piece string) { g.still, g.size = append(g.still, piece), g.size+len(piece) }

// Len is the length of the text in bytes.
func (g *Gathered) Len() int { return g.size + g.last.Len() }

// String is the whole text.
func (g *Gathered) String() string {
	if len(g.still) == 0 {
		return g.last.String()
	}
	var whole strings.Builder
	whole.Grow(g.Len())
	for _, piece := range g.still {
		whole.WriteString(piece)
	}
	whole.WriteString(g.last.String())
	return whole.String()
}
