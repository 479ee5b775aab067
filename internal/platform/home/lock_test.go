package home

import (
	"context"
	"errors"
	"os"
	"testing"
)

// Who waits for a lock gets it when it is free, is told of every other problem at
// once, and waits no longer than he wants to.
func TestAwait(t *testing.T) {
	dir := t.TempDir()
	take := func() (*os.File, error) {
		f, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		if err := Flock(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	held, err := Await(t.Context(), take)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := take(); !errors.Is(err, ErrLocked) {
		t.Errorf("a second lock: %v", err)
	}
	enough := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	tries := 0
	_, err = Await(ctx, func() (*os.File, error) {
		if tries++; tries == 3 {
			stop(enough)
		}
		return take()
	})
	if !errors.Is(err, enough) || tries < 3 {
		t.Errorf("while it is held: %v after %d tries", err, tries)
	}
	tries = 0
	next, err := Await(t.Context(), func() (*os.File, error) {
		if tries++; tries == 3 {
			_ = held.Close()
		}
		return take()
	})
	if err != nil || tries != 3 {
		t.Fatalf("when it is free: %v after %d tries", err, tries)
	}
	_ = next.Close()
	if _, err := Await(t.Context(), func() (int, error) { return 0, os.ErrNotExist }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("another problem: %v", err)
	}
}
