package agent

import (
	"fmt"
	"hash/maphash"
	"time"
)

const (
	sameCallsHint = 5           // equal calls with equal results, in a row, of which the model is told
	maxSameCalls  = 50          // so many end the turn
	maxCircle     = 4           // calls in a repetition
	waitedCall    = time.Second // a call that took so long let time pass, as one that polls does
)

// circle notices calls that are repeated without effect: one call, or a few
// calls in turn. A call that waits for something is none of them, and what comes
// behind it is counted anew. The zero value is ready.
type circle struct {
	last [maxCircle]uint64 // the latest first
	n    int
	runs [maxCircle]int // how often in a row a call was the one so many before it
	hint bool           // the model is to be told
}

// add takes in a call with its result, and how long it took.
func (c *circle) add(seed maphash.Seed, d Done, took time.Duration) {
	if took >= waitedCall {
		*c = circle{hint: c.hint}
		return
	}
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
	for i, run := range c.runs { // the shortest repetition is the one that is told
		if least := (i + 1) * (sameCallsHint - 1); run >= least {
			c.hint = c.hint || run == least
			break
		}
	}
}

// closed says whether the same has come too often.
func (c *circle) closed() bool {
	for i, run := range c.runs {
		if run >= (i+1)*(maxSameCalls-1) {
			return true
		}
	}
	return false
}

// reminder tells the model, once per row of repetitions; else it is empty.
func (c *circle) reminder() string {
	if !c.hint {
		return ""
	}
	c.hint = false
	return fmt.Sprintf("<system-reminder>\nThe same calls have given the same results %d times in a row. "+
		"If you wait for something, use a call that waits: TaskOutput with block, Monitor, or a command with sleep. "+
		"If not, try another way, or say what stops you. After %d times in a row the turn is ended.\n</system-reminder>",
		sameCallsHint, maxSameCalls)
}
