package watch

import (
	"bytes"
	"io"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

const (
	logPiece  = 256 << 10              // bytes asked for at once
	logWait   = 30 * time.Second       // of one long request of logs -f
	logSettle = 200 * time.Millisecond // after which a line without its end is shown
	maxHeld   = 64 << 10               // bytes of a line without its end
)

// printer prints output. For a terminal it prints whole lines: a cut in the middle of an escape
// sequence would hide the sequence.
type printer struct {
	w     io.Writer
	plain bool
	held  []byte // the line that has not ended yet
}

func (p *printer) print(data []byte) error {
	if !p.plain {
		_, err := p.w.Write(data)
		return err
	}
	p.held = append(p.held, data...)
	cut := bytes.LastIndexByte(p.held, '\n') + 1
	if len(p.held)-cut > maxHeld {
		cut = wholeRunes(p.held)
	}
	return p.out(cut)
}

// flush prints the line that has not ended.
func (p *printer) flush() error { return p.out(len(p.held)) }

func (p *printer) out(n int) error {
	if n == 0 {
		return nil
	}
	_, err := io.WriteString(p.w, excerpt.Plain(string(p.held[:n])))
	p.held = append(p.held[:0], p.held[n:]...)
	return err
}

// wholeRunes is the length of b without a character that is cut off at its end.
func wholeRunes(b []byte) int {
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
