package folder

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// PartBytes is the size of the largest parts of a transfer.
const PartBytes = 4 << 20

// minPart is the size of the smallest parts but the last, and partMask ends one at one byte of 512 Ki after that.
const (
	minPart  = 512 << 10
	partMask = (1<<19 - 1) << 45
)

// cut returns how much of the data the next part has. The content decides, so a change moves few boundaries, and parts
// before and after it are the same as they were.
func cut(data []byte) int {
	var h uint64
	for i := minPart; i < len(data); i++ {
		b := (uint64(data[i]) + 1) * 0x9e3779b97f4a7c15
		h = h<<1 + (b ^ b>>29)
		if h&partMask == 0 {
			return i + 1
		}
	}
	return len(data)
}

// ErrMissing is returned, wrapped, by [Store.Get] for a part that the store does not have.
var ErrMissing = errors.New("the store does not have this part")

// Store carries parts by the SHA-256 of their content, in hexadecimal. It is used by one goroutine
// at a time for each transfer, and by several transfers at once. What Get returns is checked by its
// reader.
type Store interface {
	Has(ctx context.Context, digest string) (bool, error)
	Put(ctx context.Context, digest string, part []byte) error // of a part that is stored already: does nothing
	Get(ctx context.Context, digest string) ([]byte, error)    // [ErrMissing]: the store lacks it
}

// Part is one piece of a transfer.
type Part struct {
	Digest string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// short is an identifier as an error shows it.
func short(id string) string { return id[:min(len(id), 12)] }

// send cuts what r yields into parts and puts those that the store does not have.
func send(ctx context.Context, s Store, r io.Reader) ([]Part, error) {
	var parts []Part
	in := bufio.NewReaderSize(r, PartBytes)
	for {
		data, err := in.Peek(PartBytes)
		if len(data) == 0 && errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		data = data[:cut(data)]
		p := Part{Digest: digestOf(data), Bytes: int64(len(data))}
		if err := put(ctx, s, p, data); err != nil {
			return nil, fmt.Errorf("send part %d (%s): %w", len(parts)+1, short(p.Digest), err)
		}
		parts = append(parts, p)
		if _, err := in.Discard(len(data)); err != nil {
			return nil, err
		}
	}
}

func put(ctx context.Context, s Store, p Part, data []byte) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	has, err := s.Has(ctx, p.Digest)
	if err != nil || has {
		return err
	}
	return s.Put(ctx, p.Digest, data)
}

// receive writes parts to w, each checked before.
func receive(ctx context.Context, s Store, parts []Part, w io.Writer) error {
	for i, p := range parts {
		data, err := get(ctx, s, p)
		if err != nil {
			return fmt.Errorf("receive part %d of %d (%s): %w", i+1, len(parts), short(p.Digest), err)
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}

func get(ctx context.Context, s Store, p Part) ([]byte, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	data, err := s.Get(ctx, p.Digest)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != p.Bytes {
		return nil, fmt.Errorf("it has %d bytes, and the manifest says %d", len(data), p.Bytes)
	}
	if got := digestOf(data); got != p.Digest {
		return nil, fmt.Errorf("its content has another digest, %s", short(got))
	}
	return data, nil
}

// checkParts refuses a list of parts that no sender of ours makes.
func checkParts(parts []Part, most int64) error {
	total := int64(0)
	for i, p := range parts {
		switch {
		case !hexes(p.Digest, 64):
			return fmt.Errorf("part %d has no valid digest", i+1)
		case p.Bytes < 1 || p.Bytes > PartBytes:
			return fmt.Errorf("part %d of %d claims to have %d bytes, the limit is %d", i+1, len(parts), p.Bytes, PartBytes)
		}
		total += p.Bytes
	}
	if total > most {
		return fmt.Errorf("its parts add up to %s, the limit is %s", size(total), size(most))
	}
	return nil
}

func total(parts []Part) (n int64) {
	for _, p := range parts {
		n += p.Bytes
	}
	return n
}

// hexes reports whether s is n lower-case hexadecimal digits.
func hexes(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
