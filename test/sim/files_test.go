package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// files are the two files of a journal as they are at one moment. The third, shared
// memory, is made anew by whoever opens them.
type files struct{ db, wal []byte }

const databaseName = "session.db"

// take reads the files while nobody writes.
func take(dir string) files {
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			panic(failure(err.Error()))
		}
		return data
	}
	return files{db: read(databaseName), wal: read(databaseName + "-wal")}
}

// put writes the files into a folder.
func (f files) put(dir string) {
	err := os.MkdirAll(dir, 0o700)
	for name, data := range map[string][]byte{databaseName: f.db, databaseName + "-wal": f.wal} {
		if data != nil {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		}
	}
	if err != nil {
		panic(failure(err.Error()))
	}
}

// wal follows a write-ahead log as it grows: which frames belong to its present
// generation. The format is that of https://www.sqlite.org/fileformat2.html#walformat.
type wal struct {
	path       string
	salt       [8]byte
	generation int
	end        int64     // of the last whole frame
	sum, first [2]uint32 // over all up to there, and over the head
	order      binary.ByteOrder
	page       int
	frames     []frame
}

// frame is one page in a write-ahead log.
type frame struct {
	end    int64
	sum    [2]uint32 // over all up to here
	commit bool      // the last one of a transaction
}

const (
	walHead   = 32
	frameHead = 24
)

// commits is how many frames are part of a transaction that was committed.
func (w *wal) commits() int {
	for n := len(w.frames); n > 0; n-- {
		if w.frames[n-1].commit {
			return n
		}
	}
	return 0
}

// at is where the first n frames end.
func (w *wal) at(n int) int64 {
	if n == 0 {
		return walHead
	}
	return w.frames[n-1].end
}

// look reads what has come since the last look. Somebody may be writing: what is not
// whole is left for the next time. What no commit follows is read again, since it is
// written over: a writer that died may have left it.
func (w *wal) look() {
	f, err := os.Open(w.path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		panic(failure(err.Error()))
	}
	defer f.Close()
	head := make([]byte, walHead)
	if n, _ := f.ReadAt(head, 0); n < walHead {
		return
	}
	if !bytes.Equal(head[16:24], w.salt[:]) && !w.begin(head) {
		return
	}
	w.back(w.commits())
	for buf := make([]byte, frameHead+w.page); ; {
		if n, _ := f.ReadAt(buf, w.end); n < len(buf) || !bytes.Equal(buf[8:16], w.salt[:]) {
			return
		}
		sum := w.add(w.add(w.sum, buf[:8]), buf[frameHead:])
		if sum != [2]uint32{binary.BigEndian.Uint32(buf[16:]), binary.BigEndian.Uint32(buf[20:])} {
			return
		}
		w.sum, w.end = sum, w.end+int64(len(buf))
		w.frames = append(w.frames, frame{w.end, w.sum, binary.BigEndian.Uint32(buf[4:]) != 0})
	}
}

// back forgets all but the first n frames.
func (w *wal) back(n int) {
	w.frames, w.end, w.sum = w.frames[:n], w.at(n), w.first
	if n > 0 {
		w.sum = w.frames[n-1].sum
	}
}

// begin takes up a generation. It reports whether its head is whole.
func (w *wal) begin(head []byte) bool {
	var order binary.ByteOrder = binary.LittleEndian
	if binary.BigEndian.Uint32(head) == 0x377f0683 {
		order = binary.BigEndian
	}
	fresh := wal{path: w.path, generation: w.generation + 1, end: walHead, order: order, page: int(binary.BigEndian.Uint32(head[8:]))}
	fresh.sum = fresh.add(fresh.sum, head[:24])
	if fresh.sum != [2]uint32{binary.BigEndian.Uint32(head[24:]), binary.BigEndian.Uint32(head[28:])} {
		return false
	}
	copy(fresh.salt[:], head[16:24])
	fresh.first = fresh.sum
	*w = fresh
	return true
}

func (w *wal) add(sum [2]uint32, data []byte) [2]uint32 {
	for i := 0; i+8 <= len(data); i += 8 {
		sum[0] += w.order.Uint32(data[i:]) + sum[1]
		sum[1] += w.order.Uint32(data[i+4:]) + sum[0]
	}
	return sum
}
