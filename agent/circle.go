package agent

import "hash/maphash"

const (
	maxSameCalls = 8 // repetitions, in a row, of the same calls with the same results
	maxCircle    = 4 // calls in a repetition
)

// circle notices calls that are repeated without effect: one call, or a few
// calls in turn. The zero value is ready.
type circle struct {
	last [maxCircle]uint64 // the latest first
	n    int
	runs [maxCircle]int // how often in a row a call was the one so many before it
}

// add takes in a call with its result.
func (c *circle) add(seed maphash.Seed, d Done) {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, s := range []string{d.Call.Name, string(d.Call.Input), d.Output.Text} {
		_, _ = h.WriteString(s)
		_ = h.WriteByte(0)
	}
	sum := h.Sum64()
	for i := range c.last {
		if i < c.n && c.last[i] == sum {
			c.runs[i]++
		} else {
			c.runs[i] = 0
		}
	}
	copy(c.last[1:], c.last[:])
	c.last[0] = sum
	c.n++
}

// closed says whether the same has come too often.
func (c *circle) closed() bool {
	for i, run := range c.runs {
		if run >= (i+1)*maxSameCalls {
			return true
		}
	}
	return false
}
