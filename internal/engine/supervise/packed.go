package supervise

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"

	"github.com/drover-dev/drover/task"
)

// Ended is what stays in memory of an evicted task: its ID and its name are not given to
// another task, a start with its key finds it, and its runs count against the limits.
type Ended struct {
	ID     task.ID
	Born   task.Seq // of its first event
	Name   string
	Parent task.ID
	Key    string
	Root   task.ID // of the tree in which it was started
	Pool   string
	Runs   int

	// The usage below is for the session; the supervisor does not read it.
	Kind        task.Kind
	AgentType   string
	Budget      task.Budget
	OutputBytes int64
}

// NewEnded returns the Ended of a task that was started in the tree of root.
func NewEnded(born task.Seq, root task.ID, r *task.Record) Ended {
	return Ended{
		ID:          r.ID,
		Born:        born,
		Name:        r.Name,
		Parent:      r.Parent,
		Key:         r.Key,
		Root:        root,
		Pool:        r.Pool,
		Runs:        1 + r.Resumes,
		Kind:        r.Kind,
		AgentType:   r.AgentType,
		Budget:      r.Budget,
		OutputBytes: r.OutputBytes,
	}
}

// Append appends the encoding of e to b, about 50 bytes. [ReadEnded] decodes it.
func (e *Ended) Append(b []byte) []byte {
	root := string(e.Root)
	if e.Root == e.ID {
		root = ""
	}
	b = binary.AppendUvarint(b, uint64(e.Born))
	b = appendWords(b, string(e.ID), e.Name, string(e.Parent), e.Key, root, e.Pool, string(e.Kind), e.AgentType)
	for _, n := range [...]uint64{uint64(e.Runs), uint64(e.OutputBytes), math.Float64bits(e.Budget.USD),
		uint64(e.Budget.Tokens), uint64(e.Budget.OutputBytes)} {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func appendWords(b []byte, words ...string) []byte {
	for _, w := range words {
		b = append(binary.AppendUvarint(b, uint64(len(w))), w...)
	}
	return b
}

// ReadEnded decodes the result of [Ended.Append] at the beginning of b and returns the rest. ok
// is false if there is none.
func ReadEnded(b []byte) (e Ended, rest []byte, ok bool) {
	r := reader{b: b}
	e.Born = task.Seq(r.number())
	e.ID, e.Name, e.Parent, e.Key = task.ID(r.word()), string(r.word()), task.ID(r.word()), string(r.word())
	e.Root, e.Pool, e.Kind, e.AgentType = task.ID(r.word()), string(r.word()), task.Kind(r.word()), string(r.word())
	e.Root = cmp.Or(e.Root, e.ID)
	e.Runs, e.OutputBytes = int(r.number()), int64(r.number())
	e.Budget = task.Budget{
		USD:         math.Float64frombits(r.number()),
		Tokens:      int64(r.number()),
		OutputBytes: int64(r.number()),
	}
	return e, r.b, !r.bad
}

// reader decodes numbers and strings. After the first error it returns zero values.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) word() []byte {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return nil
	}
	w := r.b[:n]
	r.b = r.b[n:]
	return w
}

// packed stores ended tasks as bytes. There may be a hundred thousand, most of which no client
// asks for. The garbage collector does not scan bytes, which saves time and half of the memory.
// A task takes about 50 bytes, and 15 for the index.
type packed struct {
	pages            pages
	used             int     // used bytes of the last page
	order            []place // of all tasks, by first event; never changed in place
	seed             maphash.Seed
	ids, names, keys index
}

func newPacked() packed {
	return packed{
		seed:  maphash.MakeSeed(),
		ids:   index{from: 0, to: 1},
		names: index{from: 1, to: 2},
		keys:  index{from: 2, to: 4},
	}
}

// add stores a task. An earlier entry of the same task stays in its page and is never again
// found. The place is not in the order yet.
func (p *packed) add(e *Ended) (at place, known bool) {
	b := e.Append(nil)
	old, known := p.id(e.ID)
	if known && bytes.HasPrefix(p.pages.at(old), b) {
		return old, true
	}
	if last := len(p.pages) - 1; last < 0 || len(p.pages[last])-p.used < len(b) {
		p.pages, p.used = append(p.pages, make([]byte, max(pageBytes, len(b)))), 0
	}
	at = place(len(p.pages)-1)<<placeBits | place(p.used)
	p.used += copy(p.pages[len(p.pages)-1][p.used:], b)
	p.put(&p.ids, at)
	if e.Name != "" {
		p.put(&p.names, at)
	}
	if e.Key != "" {
		p.put(&p.keys, at)
	}
	return at, known
}

// sortIn inserts places into the order and replaces earlier ones of the same tasks.
func (p *packed) sortIn(fresh []place) {
	if len(fresh) == 0 {
		return
	}
	born := p.pages.born
	slices.SortFunc(fresh, func(a, b place) int { return cmp.Compare(born(a), born(b)) })
	from := firstFrom(p.order, func(at place) bool { return born(at) >= born(fresh[0]) })
	order := append(make([]place, 0, len(p.order)+len(fresh)), p.order[:from]...)
	for _, at := range p.order[from:] {
		for len(fresh) > 0 && born(fresh[0]) < born(at) {
			order, fresh = append(order, fresh[0]), fresh[1:]
		}
		if len(fresh) == 0 || born(fresh[0]) > born(at) {
			order = append(order, at)
		}
	}
	p.order = append(order, fresh...)
}

func (p *packed) id(id task.ID) (place, bool)    { return p.find(&p.ids, string(id)) }
func (p *packed) name(name string) (place, bool) { return p.find(&p.names, name) }
func (p *packed) key(k childKey) (place, bool)   { return p.find(&p.keys, string(k.parent), k.key) }

// pages are written once, so a known place can be read without a lock.
type pages [][]byte

// place is the position of a task: the number of a page and an offset.
type place uint32

const (
	placeBits = 16
	pageBytes = 1 << placeBits // or the size of one larger task
)

func (p pages) at(at place) []byte { return p[at>>placeBits][at&(pageBytes-1):] }

func (p pages) get(at place) Ended {
	e, _, _ := ReadEnded(p.at(at))
	return e
}

func (p pages) born(at place) task.Seq {
	n, _ := binary.Uvarint(p.at(at))
	return task.Seq(n)
}

// words returns the encoded strings of a task from one index to another.
func (p pages) words(at place, from, to int) []byte {
	r := reader{b: p.at(at)}
	r.number()
	for range from {
		r.word()
	}
	all := r.b
	for range to - from {
		r.word()
	}
	return all[:len(all)-len(r.b)]
}

// begins reports whether an ID has a prefix.
func (p pages) begins(at place, with string) bool {
	r := reader{b: p.words(at, 0, 1)}
	id := r.word()
	return len(id) >= len(with) && string(id[:len(with)]) == with
}

func (p pages) id(at place) task.ID {
	r := reader{b: p.words(at, 0, 1)}
	return task.ID(r.word())
}

// index finds tasks by some of their strings. It is an open-addressing hash table of places.
type index struct {
	from, to int     // the strings of a place
	slots    []place // 0: free; else the place plus one
	used     int
}

// find returns the place of the newest task with these strings.
func (p *packed) find(x *index, words ...string) (place, bool) {
	if x.used == 0 {
		return 0, false
	}
	var buf [64]byte
	slot := p.slot(x, appendWords(buf[:0], words...))
	return *slot - 1, *slot != 0
}

// slot returns the slot where a task with these strings is or belongs.
func (p *packed) slot(x *index, words []byte) *place {
	for i := maphash.Bytes(p.seed, words); ; i++ {
		slot := &x.slots[i%uint64(len(x.slots))]
		if *slot == 0 || bytes.Equal(p.pages.words(*slot-1, x.from, x.to), words) {
			return slot
		}
	}
}

func (p *packed) put(x *index, at place) {
	if 2*(x.used+1) > len(x.slots) {
		old := x.slots
		x.slots, x.used = make([]place, max(64, 2*len(old))), 0
		for _, slot := range old {
			if slot != 0 {
				p.put(x, slot-1)
			}
		}
	}
	slot := p.slot(x, p.pages.words(at, x.from, x.to))
	switch {
	case *slot == 0:
		x.used++
	case p.pages.born(at) < p.pages.born(*slot-1): // an older task with the same name
		return
	}
	*slot = at + 1
}
