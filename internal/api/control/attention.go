package control

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"time"

	"github.com/drover-dev/drover/internal/api/attention"
)

// AttentionRequest asks for what needs the user.
type AttentionRequest struct {
	After string        `json:"after,omitempty"`   // the known version; only with Wait
	Wait  time.Duration `json:"wait_ns,omitempty"` // maximum wait for another version; 0: return at once
}

// AttentionItem is one thing that needs the user.
type AttentionItem = attention.Item

// Attention is what needs the user. Lists of equal versions are equal.
type Attention struct {
	Items   []AttentionItem `json:"items"`
	More    int             `json:"more,omitempty"` // number of items beyond the limit
	Version string          `json:"version"`
}

// NewAttention returns the list for these facts.
func NewAttention(f attention.Facts, now time.Time) (Attention, error) {
	var a Attention
	a.Items, a.More = attention.Items(f, now)
	data, err := json.Marshal(a)
	if err != nil {
		return a, err
	}
	sum := sha256.Sum256(data)
	a.Version = strconv.FormatUint(binary.BigEndian.Uint64(sum[:]), 36)
	return a, nil
}

// MergeAttention merges the lists of several sessions.
func MergeAttention(lists []Attention) (all Attention) {
	items := make([][]AttentionItem, len(lists))
	for i, l := range lists {
		items[i], all.More = l.Items, all.More+l.More
	}
	merged, more := attention.Merge(items...)
	all.Items, all.More = merged, all.More+more
	return all
}

// seenRequest names the tasks whose ends the user has seen.
type seenRequest struct {
	Refs []string `json:"refs"`
}
