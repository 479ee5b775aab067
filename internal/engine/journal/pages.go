package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"iter"
)

// The files of a log are parsed here without SQLite, which stops at the first damage that it
// finds. The format is https://sqlite.org/fileformat2.html.
const (
	pageBytes   = 4096 // of every log of Drover
	walHeader   = 32
	frameHeader = 24

	tableNode  = 0x05 // the kinds of pages
	indexLeaf  = 0x0a
	overflowed = 0x00 // of no page type: the overflow of other pages
)

// maxNumber is larger than any number of a log. A larger value is damage.
const maxNumber = 1 << 40

// Remains are the files of a damaged log: session.db and session.db-wal, which has the pages that
// are not checkpointed yet. Either may be nil.
type Remains struct {
	DB, WAL           io.ReaderAt
	DBBytes, WALBytes int64
}

// image is the set of pages of a log.
type image struct {
	Remains
	pages uint32           // from 1
	over  map[uint32]int64 // offset in the WAL of the newest version of a page, as SQLite sees it
	rest  []frame          // further committed pages of the WAL, oldest first: after damage, or from before a checkpoint
	late  map[uint32]int64 // the newest of those
	bad   int              // pages that could not be read from the disk
}

// frame is a page in the WAL.
type frame struct {
	page uint32
	at   int64
}

// look indexes the pages.
func (r Remains) look() *image {
	m := &image{Remains: r, over: map[uint32]int64{}, late: map[uint32]int64{}}
	m.scan()
	m.pages = uint32(min((r.DBBytes+pageBytes-1)/pageBytes, 1<<31))
	for n := range m.over {
		m.pages = max(m.pages, n)
	}
	for _, f := range m.rest {
		m.late[f.page] = f.at
	}
	return m
}

// scan iterates over the frames of the WAL. The frames that SQLite would use are identified by
// their checksums, each of which covers everything before it. A frame of a transaction without
// an end counts as not written.
func (m *image) scan() {
	if m.WAL == nil {
		return
	}
	head := make([]byte, walHeader)
	if _, err := m.WAL.ReadAt(head, 0); err != nil {
		return
	}
	var order binary.ByteOrder = binary.LittleEndian
	if head[3]&1 == 1 {
		order = binary.BigEndian
	}
	sum := walSum(order, [2]uint32{}, head[:24])
	whole := sum == [2]uint32{be32(head[24:]), be32(head[28:])} && be32(head[8:]) == pageBytes
	salt := string(head[16:24])
	var open []frame // of a transaction that has not ended
	buf := make([]byte, frameHeader+pageBytes)
	for at := int64(walHeader); at+int64(len(buf)) <= m.WALBytes; at += int64(len(buf)) {
		if _, err := m.WAL.ReadAt(buf, at); err != nil {
			whole, m.bad = false, m.bad+1
			continue
		}
		if string(buf[8:16]) != salt {
			whole, open, salt = false, nil, string(buf[8:16])
		}
		sum = walSum(order, walSum(order, sum, buf[:8]), buf[frameHeader:])
		f := frame{be32(buf), at + frameHeader}
		whole = whole && f.page > 0 && sum == [2]uint32{be32(buf[16:]), be32(buf[20:])}
		if open = append(open, f); be32(buf[4:]) == 0 { // no commit frame
			continue
		}
		if whole {
			for _, f := range open {
				m.over[f.page] = f.at
			}
		} else {
			m.rest = append(m.rest, open...)
		}
		open = nil
	}
}

func walSum(order binary.ByteOrder, s [2]uint32, b []byte) [2]uint32 {
	for ; len(b) >= 8; b = b[8:] {
		s[0] += order.Uint32(b) + s[1]
		s[1] += order.Uint32(b[4:]) + s[0]
	}
	return s
}

func be32(b []byte) uint32 { return binary.BigEndian.Uint32(b) }

// page returns a page as SQLite sees it. The missing part of a truncated file is 0.
func (m *image) page(n uint32, into []byte) bool {
	if at, ok := m.over[n]; ok {
		return m.read(m.WAL, at, into)
	}
	return m.DB != nil && n > 0 && m.read(m.DB, (int64(n)-1)*pageBytes, into)
}

// Late reports whether something of the log is in the WAL only, and is intact.
func (r Remains) Late() bool { return len(r.look().over) > 0 }

// WriteTo writes the log as one file with the intact part of the WAL applied, as SQLite does at
// the next opening. Damage is written unchanged.
func (r Remains) WriteTo(w io.Writer) (n int64, err error) {
	m := r.look()
	buf := make([]byte, pageBytes)
	for p := uint32(1); p <= m.pages; p++ {
		m.page(p, buf)
		k, err := w.Write(buf)
		if n += int64(k); err != nil {
			return n, err
		}
	}
	return n, nil
}

// older reads the version of a page in the rest of the WAL.
func (m *image) older(n uint32, into []byte) bool {
	if at, ok := m.late[n]; ok {
		return m.read(m.WAL, at, into)
	}
	return m.page(n, into)
}

func (m *image) read(f io.ReaderAt, at int64, into []byte) bool {
	clear(into)
	_, err := f.ReadAt(into, at)
	if err != nil && !errors.Is(err, io.EOF) {
		m.bad++
		return false
	}
	return true
}

// rows yields the rows of the leaves of indexes or of tables: first those that SQLite sees, then the rest of the WAL.
func (m *image) rows(ctx context.Context, index bool) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		buf := make([]byte, pageBytes)
		visit := func(there bool, next func(uint32, []byte) bool) bool {
			if ctx.Err() != nil {
				yield(row{}, context.Cause(ctx))
				return false
			}
			if !there || isIndex(buf) != index {
				return true
			}
			for _, r := range cells(buf, m.pages, next) {
				if !yield(r, nil) {
					return false
				}
			}
			return true
		}
		for n := uint32(2); n <= m.pages && n > 0; n++ { // page 1 has SQLite's own schema table
			if !visit(m.page(n, buf), m.page) {
				return
			}
		}
		for i := len(m.rest) - 1; i >= 0; i-- {
			if f := m.rest[i]; f.page > 1 && !visit(m.read(m.WAL, f.at, buf), m.older) {
				return
			}
		}
	}
}

func isIndex(page []byte) bool { return page[0] == indexLeaf }

// row is a row of a table, or an entry of an index.
type row struct {
	number int64    // of the row
	shape  string   // a letter for each column: null, integer, float, text, blob
	cols   []column // one value for each column
}

type column struct {
	num  int64
	text []byte
}

// cells yields the rows of a page. It does not trust the stored row count: it uses the cell
// pointers before the first row. next reads overflow pages.
func cells(page []byte, pages uint32, next func(uint32, []byte) bool) (rows []row) {
	most := pageBytes - 35
	switch page[0] {
	case overflowed, tableNode: // the content may be arbitrary text
		return nil
	case indexLeaf:
		most = indexMost
	}
	followed := 0
	some := func(n uint32, into []byte) bool {
		followed++
		return followed <= mostFollowed && next(n, into)
	}
	for at, low := 8, pageBytes; at+2 <= low; at += 2 {
		cell := int(binary.BigEndian.Uint16(page[at:]))
		if cell < at+2 || cell >= pageBytes {
			continue
		}
		if r := readRow(page[cell:], isIndex(page), most, pages, some); r.shape != "" {
			low = min(low, cell)
			rows = append(rows, r)
		}
	}
	return rows
}

// mostFollowed limits the overflow pages of the rows of one page: 64 MiB. Damage can make a
// chain as long as the file from every two bytes.
const mostFollowed = 1 << 14

const (
	indexMost = (pageBytes-12)*64/255 - 23 // of an entry on its own page
	leastHere = (pageBytes-12)*32/255 - 23 // of an entry with overflow pages
)

// readRow parses a row. Its shape is empty if the row is damaged.
func readRow(b []byte, index bool, most int, pages uint32, next func(uint32, []byte) bool) (r row) {
	total, n := varint(b)
	if b = b[n:]; n == 0 || total < 2 || total > int64(pages)*pageBytes {
		return row{}
	}
	if !index {
		if r.number, n = varint(b); n == 0 || r.number < 1 || r.number > maxNumber {
			return row{}
		}
		b = b[n:]
	}
	here, link := int(min(total, pageBytes)), 0
	if total > int64(most) {
		if here, link = leastHere+int((total-leastHere)%(pageBytes-4)), 4; here > most {
			here = leastHere
		}
	}
	if here+link > len(b) {
		return row{}
	}
	shape, sizes, at := layout(b[:here], total)
	if shape == "" {
		return row{}
	}
	whole := b[:here:here]
	if link > 0 {
		whole = follow(whole, total, be32(b[here:]), next)
	}
	if int64(len(whole)) != total {
		return row{}
	}
	r.shape, r.cols = shape, make([]column, len(shape))
	for i, size := range sizes {
		r.cols[i] = value(shape[i], size, whole[at:])
		at += size.bytes
	}
	return r
}

// follow appends the content of overflow pages to the beginning of a row. It reads no more
// pages than the length of the row needs.
func follow(whole []byte, total int64, page uint32, next func(uint32, []byte) bool) []byte {
	buf := make([]byte, pageBytes)
	for int64(len(whole)) < total && page > 0 && next(page, buf) {
		whole = append(whole, buf[4:4+min(total-int64(len(whole)), pageBytes-4)]...)
		page = be32(buf)
	}
	return whole
}

// size returns how a column is stored: in a number of bytes, or as a constant without any.
type size struct {
	bytes int
	num   int64
}

// maxColumns is more than any table of a log has.
const maxColumns = 16

// layout reads the header of a row, whose lengths must match the row exactly.
func layout(b []byte, total int64) (shape string, sizes []size, at int) {
	head, n := varint(b)
	if n == 0 || head < int64(n) || head > int64(len(b)) || head > 9*maxColumns {
		return "", nil, 0
	}
	sum, at := head, int(head)
	for b = b[n:at]; len(b) > 0; b = b[n:] {
		var kind int64
		if kind, n = varint(b); n == 0 || kind < 0 || kind == 10 || kind == 11 || len(shape) == maxColumns {
			return "", nil, 0
		}
		letter, s := kept(kind)
		shape, sizes, sum = shape+letter, append(sizes, s), sum+int64(s.bytes)
		if sum > total {
			return "", nil, 0
		}
	}
	if sum != total {
		return "", nil, 0
	}
	return shape, sizes, at
}

// kept decodes the serial type of a column.
func kept(kind int64) (letter string, s size) {
	switch {
	case kind == 0:
		return "n", s
	case kind <= 4:
		return "i", size{bytes: int(kind)}
	case kind == 5:
		return "i", size{bytes: 6}
	case kind == 6:
		return "i", size{bytes: 8}
	case kind == 7:
		return "f", size{bytes: 8}
	case kind <= 9:
		return "i", size{num: kind - 8}
	case kind%2 == 0:
		return "b", size{bytes: int((kind - 12) / 2)}
	}
	return "t", size{bytes: int((kind - 13) / 2)}
}

func value(letter byte, s size, b []byte) column {
	b = b[:s.bytes]
	if letter != 'i' || s.bytes == 0 {
		return column{num: s.num, text: b}
	}
	n := int64(int8(b[0]))
	for _, c := range b[1:] {
		n = n<<8 | int64(c)
	}
	return column{num: n}
}

// varint decodes a number of SQLite and returns its length in bytes; 0: invalid.
func varint(b []byte) (v int64, n int) {
	for n < len(b) && n < 8 {
		v = v<<7 | int64(b[n]&0x7f)
		if n++; b[n-1] < 0x80 {
			return v, n
		}
	}
	if n < 8 || len(b) < 9 {
		return 0, 0
	}
	return v<<8 | int64(b[8]), 9
}
