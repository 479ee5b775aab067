package placement

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/drover-dev/drover/internal/fleet/folder"
)

// Book records which worker may work on one task. It is a value; its methods are the
// rules of claims and do no I/O. Its zero value has granted nothing.
type Book struct {
	V        int    `json:"v"`
	Epoch    uint64 `json:"epoch"`          // of the newest grant; it only rises
	Worker   string `json:"worker"`         // to whom
	Instance string `json:"instance"`       // which start of that worker
	Offer    string `json:"offer"`          // that was claimed
	Over     bool   `json:"over,omitempty"` // the grant counts no more
	Reported bool   `json:"-"`              // its worker has reported its end, which counts
	Bytes    int64  `json:"-"`              // of output that has been taken

	// Sending: the worker waits for its folder.
	Sending bool `json:"sending,omitempty"`
	// Sent is what the worker's folder was made of, without its parts. Nil: it has none.
	Sent  *folder.Manifest `json:"folder,omitempty"`
	Notes []string         `json:"notes,omitempty"` // what of the folder did not travel, for people

	// Earlier are the last claims before this one whose folders may come back yet.
	Earlier []Former `json:"earlier,omitempty"`
}

// Former is a claim that does not count any more, with what its folder was made of.
type Former struct {
	Epoch    uint64           `json:"epoch"`
	Worker   string           `json:"worker"`
	Instance string           `json:"instance"`
	Sent     *folder.Manifest `json:"folder,omitempty"`
}

// maxEarlier limits the claims of which a book remembers the folders.
const maxEarlier = 4

func (b Book) former() Former { return Former{b.Epoch, b.Worker, b.Instance, b.Sent} }

// Lost returns the claim by which a worker that could not be reached had a folder.
func (b Book) Lost(worker, instance string, epoch uint64) (Former, bool) {
	for _, f := range append([]Former{b.former()}, b.Earlier...) {
		if f.Epoch == epoch && f.Worker == worker && f.Instance == instance && f.Sent != nil {
			return f, true
		}
	}
	return Former{}, false
}

const bookVersion = 1

// Reasons for which something of a worker is refused.
var (
	errOther = errors.New("another worker has claimed the offer")
	errStale = errors.New("its epoch is not the newest one")
	errOver  = errors.New("its claim has ended")
)

func readBook(data []byte) (Book, error) {
	var b Book
	err := json.Unmarshal(data, &b)
	if err == nil && b.V != bookVersion {
		err = fmt.Errorf("it has version %d, this program knows %d", b.V, bookVersion)
	}
	if err != nil {
		return b, fmt.Errorf("read checkpoint: %w", err)
	}
	return b, nil
}

func (b Book) encode() ([]byte, error) { return json.Marshal(b) }

// Grant gives the task to a worker that has claimed an open offer. A worker that asks again,
// because an answer was lost, gets the same grant: fresh is false then.
func (b Book) Grant(open, offer, worker, instance string) (next Book, fresh bool, err error) {
	switch {
	case !b.Over && b.Epoch > 0 && b.Offer == offer && b.Worker == worker && b.Instance == instance:
		return b, false, nil
	case open == "" || offer != open:
		return b, false, errOther
	}
	if f := b.former(); f.Sent != nil {
		b.Earlier = append(slices.Clone(b.Earlier[max(0, len(b.Earlier)-maxEarlier+1):]), f)
		b.Sent, b.Notes = nil, nil
	}
	b.V, b.Epoch, b.Worker, b.Instance, b.Offer = bookVersion, b.Epoch+1, worker, instance, offer
	b.Over, b.Reported = false, false
	return b, true, nil
}

// Valid refuses what comes with another epoch than the newest, or from another worker, or after
// the end of the claim.
func (b Book) Valid(worker, instance string, epoch uint64) error {
	switch {
	case epoch != b.Epoch || worker != b.Worker || instance != b.Instance:
		return errStale
	case b.Over:
		return errOver
	}
	return nil
}

// End ends the claim: nothing more of it counts.
func (b Book) End() Book {
	b.Over = true
	return b
}

// Take returns the part of output that is new; the output begins at an offset of the worker's.
// gap is set if something before it is missing.
func (b Book) Take(base, offset int64, data []byte) (part []byte, next Book, gap bool) {
	at := base + offset // in the output of the task, which may have more than one attempt
	switch {
	case at > b.Bytes:
		return nil, b, true
	case at+int64(len(data)) <= b.Bytes:
		return nil, b, false
	}
	part = data[b.Bytes-at:]
	b.Bytes += int64(len(part))
	return part, b, false
}
