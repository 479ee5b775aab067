package spool

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/drover-dev/drover/internal/below"
)

// DefaultMemory is how many bytes a [Buffer] keeps in memory, if nothing else
// is asked for: 8 MB.
const DefaultMemory = 8_000_000

// recentLines is how much of stdout is still shown once a buffer has spilled,
// and recentBytes bounds lines without end.
const (
	recentLines = 5
	recentBytes = 16 << 10
)

// Buffer holds what a short-lived command prints into pipes, such as a hook:
// in memory, and in a file once it is too much. Its methods may be called from
// several goroutines. Make it with [NewBuffer].
type Buffer struct {
	path   string // never changes, nor do memory and opt
	memory int
	opt    Options

	mu             sync.Mutex
	stdout, stderr bytes.Buffer
	file           *File  // nil until spilled
	recent         []byte // of stdout, once spilled
}

// NewBuffer makes a buffer that spills into a new file at path once it holds
// more than memory bytes (0: [DefaultMemory]).
func NewBuffer(path string, memory int, opt Options) *Buffer {
	if memory <= 0 {
		memory = DefaultMemory
	}
	return &Buffer{path: path, memory: memory, opt: opt}
}

// WriteStdout keeps what the command printed.
func (b *Buffer) WriteStdout(p []byte) (int, error) { return b.write(&b.stdout, p) }

// WriteStderr keeps what the command complained about.
func (b *Buffer) WriteStderr(p []byte) (int, error) { return b.write(&b.stderr, p) }

func (b *Buffer) write(to *bytes.Buffer, p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file == nil {
		if b.stdout.Len()+b.stderr.Len()+len(p) <= b.memory {
			return to.Write(p)
		}
		if err := b.spill(); err != nil {
			return 0, err
		}
	}
	if to == &b.stdout {
		b.remember(p)
	}
	return b.file.Write(p)
}

// spill moves all that was kept into the file: stdout, then stderr, because
// how they were mixed is not known.
func (b *Buffer) spill() error {
	file, err := Open(b.path, b.opt)
	if err != nil {
		return fmt.Errorf("spill: %w", err)
	}
	for _, part := range []*bytes.Buffer{&b.stdout, &b.stderr} {
		if _, err := file.Write(part.Bytes()); err != nil {
			// It was made just now, and in the way of another try.
			_ = file.Close()
			_ = cmp.Or(b.opt.Below, below.Near(b.path)).Remove(b.path)
			return fmt.Errorf("spill: %w", err)
		}
	}
	b.remember(b.stdout.Bytes())
	b.stdout, b.stderr = bytes.Buffer{}, bytes.Buffer{}
	b.file = file
	return nil
}

func (b *Buffer) remember(p []byte) {
	p = p[max(0, len(p)-recentBytes):]
	all := append(b.recent, p...)
	all = all[max(0, len(all)-recentBytes):]
	b.recent = slices.Clone(all[lastLines(all, recentLines):])
}

// Stdout is all that went to stdout; once spilled only the last 5 lines of it,
// after a notice that says where the rest is.
func (b *Buffer) Stdout() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file == nil {
		return b.stdout.String()
	}
	return fmt.Sprintf("[Too long to keep in memory. Full output: %s. Last %d lines:]\n%s",
		b.path, recentLines, strings.ToValidUTF8(string(b.recent), "\uFFFD"))
}

// Stderr is all that went to stderr; once spilled it is in the file only.
func (b *Buffer) Stderr() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stderr.String()
}

// Spilled reports whether the output went to the file.
func (b *Buffer) Spilled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.file != nil
}

// Close closes the file, if there is one. It is kept.
func (b *Buffer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file == nil {
		return nil
	}
	return b.file.Close()
}
