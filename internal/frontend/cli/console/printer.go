package console

import (
	"bytes"
	"io"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

const (
	LogPiece  = 256 << 10              // bytes asked for at once
	LogWait   = 30 * time.Second       // of one long request of logs -f
	LogSettle = 200 * time.Millisecond // after which a line without its end is shown
	MaxHeld   = 64 << 10               // bytes of a line without its end
)

// Printer prints output. Plain text is made of whole lines, since a cut in the
// middle of a sequence would hide what it is.
type Printer struct {
	W     io.Writer
	Plain bool
	Held  []byte // the line that has not ended yet
}

func (p *Printer) Print(data []byte) error {
	if !p.Plain {
		_, err := p.W.Write(data)
		return err
	}
	p.Held = append(p.Held, data...)
	cut := bytes.LastIndexByte(p.Held, '\n') + 1
	if len(p.Held)-cut > MaxHeld {
		cut = WholeRunes(p.Held)
	}
	return p.out(cut)
}

// Flush prints the line that has not ended.
func (p *Printer) Flush() error { return p.out(len(p.Held)) }

func (p *Printer) out(n int) error {
	if n == 0 {
		return nil
	}
	_, err := io.WriteString(p.W, excerpt.Plain(string(p.Held[:n])))
	p.Held = append(p.Held[:0], p.Held[n:]...)
	return err
}

// WholeRunes is the length of b without a character that is cut off at its end.
func WholeRunes(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}
