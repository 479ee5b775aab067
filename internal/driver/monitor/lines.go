package monitor

import "bytes"

// lineBytes is how much of one line is looked at.
const lineBytes = 64 << 10

// lines cuts the input into lines. Of a line that is too long it keeps the beginning.
type lines struct {
	each func(line []byte) // without its end; good during the call only

	held []byte // the beginning of a line that has not ended
	over bool   // held is all that counts of its line
}

func (l *lines) feed(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			l.hold(p)
			return
		}
		switch line := p[:i]; {
		case len(l.held) > 0 || l.over:
			l.hold(line)
			l.flush()
		default:
			l.each(line[:min(len(line), lineBytes)])
		}
		p = p[i+1:]
	}
}

func (l *lines) hold(p []byte) {
	room := lineBytes - len(l.held)
	l.over = l.over || len(p) > room
	l.held = append(l.held, p[:min(len(p), room)]...)
}

// flush takes the held bytes for a whole line.
func (l *lines) flush() {
	if len(l.held) > 0 {
		l.each(l.held)
	}
	l.held, l.over = l.held[:0], false
}
