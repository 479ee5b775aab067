package transcript

// Window is the part of a conversation that is on the screen. It follows the end until
// the user scrolls up, and then stays where it is while more comes.
type Window struct {
	Scrolled bool  // it does not follow the end
	top      int64 // the block at the top; only if scrolled
	skip     int   // lines of it that are above the top
	Selected int64 // the block that is chosen, for opening; 0: none
}

// lines returns the lines of the i-th block, with the empty line above it.
func (s *State) lines(d *Drawer, i, width int) (gap int, lines []string) {
	lines = d.Lines(&s.Blocks[i], width)
	if i > 0 && apart(s.Blocks[i-1], s.Blocks[i]) {
		gap = 1
	}
	return gap, lines
}

// apart reports whether an empty line separates two blocks.
func apart(before, b Block) bool {
	if before.Kind != b.Kind {
		return true
	}
	switch b.Kind {
	case Task, Note, Mail, Output:
		return false
	}
	return true
}

// Row is a line on the screen, and the block that it belongs to; 0: none.
type Row struct {
	Text  string
	Block int64
}

// Rows are the height lines that are shown, fewer if there are not so many.
func (w *Window) Rows(s *State, d *Drawer, width, height int) []Row {
	if height <= 0 || len(s.Blocks) == 0 {
		return nil
	}
	if w.Scrolled {
		if rows := w.from(s, d, width, height); len(rows) == height {
			return rows
		}
		w.Scrolled = false // the end has come into view
	}
	return tail(s, d, width, height)
}

// tail are the last lines.
func tail(s *State, d *Drawer, width, height int) []Row {
	rows := make([]Row, height)
	at := height
	for i := len(s.Blocks) - 1; i >= 0 && at > 0; i-- {
		gap, lines := s.lines(d, i, width)
		for k := len(lines) - 1; k >= 0 && at > 0; k-- {
			at--
			rows[at] = Row{lines[k], s.Blocks[i].ID}
		}
		if gap > 0 && at > 0 {
			at--
			rows[at] = Row{}
		}
	}
	return rows[at:]
}

// from are the lines from the top on.
func (w *Window) from(s *State, d *Drawer, width, height int) []Row {
	i := s.index(w.top)
	if i < 0 {
		i, w.skip = 0, 0
		w.top = s.Blocks[0].ID
	}
	rows := make([]Row, 0, height)
	for skip := w.skip; i < len(s.Blocks) && len(rows) < height; i++ {
		gap, lines := s.lines(d, i, width)
		for k := -gap; k < len(lines) && len(rows) < height; k++ {
			if skip > 0 {
				skip--
				continue
			}
			if k < 0 {
				rows = append(rows, Row{})
				continue
			}
			rows = append(rows, Row{lines[k], s.Blocks[i].ID})
		}
	}
	return rows
}

// Scroll moves the window by lines, up if n is negative.
func (w *Window) Scroll(s *State, d *Drawer, width, height, n int) {
	if len(s.Blocks) == 0 || height <= 0 {
		return
	}
	if !w.Scrolled {
		if n >= 0 {
			return
		}
		w.anchor(s, d, width, height)
	}
	i := max(0, s.index(w.top))
	for ; n < 0; n++ {
		if w.skip > 0 {
			w.skip--
			continue
		}
		if i == 0 {
			break
		}
		i--
		gap, lines := s.lines(d, i, width)
		w.skip = gap + len(lines) - 1
	}
	for ; n > 0; n-- {
		gap, lines := s.lines(d, i, width)
		if w.skip+1 < gap+len(lines) {
			w.skip++
			continue
		}
		if i == len(s.Blocks)-1 {
			break
		}
		i, w.skip = i+1, 0
	}
	w.top = s.Blocks[i].ID
	if len(w.from(s, d, width, height)) < height {
		w.Scrolled = false
	}
}

// anchor holds the window where it is.
func (w *Window) anchor(s *State, d *Drawer, width, height int) {
	left := height
	for i := len(s.Blocks) - 1; i >= 0; i-- {
		gap, lines := s.lines(d, i, width)
		all := gap + len(lines)
		if all >= left || i == 0 {
			w.Scrolled, w.top, w.skip = true, s.Blocks[i].ID, max(0, all-left)
			return
		}
		left -= all
	}
}

// Begin moves the window to the first line.
func (w *Window) Begin(s *State) {
	if len(s.Blocks) > 0 {
		w.Scrolled, w.top, w.skip = true, s.Blocks[0].ID, 0
	}
}

// Follow moves the window to the end.
func (w *Window) Follow() { w.Scrolled = false }

// Select chooses the next block that can be opened, in the direction of step, and brings
// it into view.
func (w *Window) Select(s *State, d *Drawer, width, height, step int) {
	i := s.index(w.Selected)
	if i < 0 {
		i = len(s.Blocks)
		if step > 0 {
			return
		}
	}
	for i += step; i >= 0 && i < len(s.Blocks); i += step {
		if s.Blocks[i].Folded() {
			w.Selected = s.Blocks[i].ID
			w.show(s, d, width, height, i)
			return
		}
	}
	if step > 0 {
		w.Selected = 0
		w.Follow()
	}
}

// show scrolls until a block is in view.
func (w *Window) show(s *State, d *Drawer, width, height, i int) {
	for _, r := range w.Rows(s, d, width, height) {
		if r.Block == s.Blocks[i].ID {
			return
		}
	}
	w.Scrolled, w.top, w.skip = true, s.Blocks[i].ID, 0
	if len(w.from(s, d, width, height)) < height {
		w.Scrolled = false
	}
}
