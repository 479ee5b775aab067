package folder

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Types of objects in a pack, as in git's pack-format documentation.
const (
	packCommit   = 1
	packTag      = 4
	packOfsDelta = 6
	packRefDelta = 7
)

// Limits of packs that are no matter of settings.
const (
	maxDelta      = 512 << 20 // bytes of a file that git stores as differences, by its core.bigFileThreshold
	historyFactor = 16        // how much larger than the files the versions of them in a history may be
)

// scan reads a pack to its end and refuses one that would unpack to more than the limits: git makes
// room for an object as its header says, before it reads it. An object ID has idBytes bytes.
func scan(r io.Reader, idBytes int, l Limits) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var head [12]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return fmt.Errorf("read its header: %w", err)
	}
	count := binary.BigEndian.Uint32(head[8:])
	most := uint64(l.Files) * 10
	switch {
	case string(head[:4]) != "PACK" || binary.BigEndian.Uint32(head[4:]) != 2:
		return errors.New("it is not a git pack of version 2")
	case uint64(count) > most:
		return fmt.Errorf("it has %d objects, the limit is %d", count, most)
	}
	s := scanner{in: in, idBytes: idBytes, left: l.UnpackedBytes * historyFactor, limits: l}
	for i := range count {
		if err := s.object(); err != nil {
			return fmt.Errorf("object %d of %d: %w", i+1, count, err)
		}
	}
	return nil
}

type scanner struct {
	in      *bufio.Reader
	idBytes int
	z       io.ReadCloser
	left    int64
	limits  Limits
}

func (s *scanner) take(n uint64) error {
	if n > uint64(s.limits.UnpackedBytes) {
		return fmt.Errorf("it unpacks to %s, the limit is %s", size(int64(min(n, 1<<62))), size(s.limits.UnpackedBytes))
	}
	if s.left -= int64(n); s.left < 0 {
		return fmt.Errorf("with it the objects unpack to more than %s, the limit", size(s.limits.UnpackedBytes*historyFactor))
	}
	return nil
}

func (s *scanner) object() error {
	kind, n, err := s.header()
	if err != nil {
		return err
	}
	delta := kind == packOfsDelta || kind == packRefDelta
	if !delta && (kind < packCommit || kind > packTag) {
		return fmt.Errorf("its type %d is not known", kind)
	}
	if err := s.take(n); err != nil {
		return err
	}
	switch kind {
	case packOfsDelta:
		for more := true; more; {
			b, err := s.in.ReadByte()
			if err != nil {
				return err
			}
			more = b&0x80 != 0
		}
	case packRefDelta: // the base is named by its ID, which is as long as the format says
		if _, err := s.in.Discard(s.idBytes); err != nil {
			return err
		}
	}
	return s.body(n, delta)
}

// header reads the type and the size of an object.
func (s *scanner) header() (kind byte, n uint64, err error) {
	b, err := s.in.ReadByte()
	if err != nil {
		return 0, 0, err
	}
	kind, n = b>>4&7, uint64(b&15)
	for shift := 4; b&0x80 != 0; shift += 7 {
		if shift > 60 {
			return 0, 0, errors.New("its size is absurd")
		}
		if b, err = s.in.ReadByte(); err != nil {
			return 0, 0, err
		}
		n |= uint64(b&0x7f) << shift
	}
	return kind, n, nil
}

// body reads the packed content of an object. A delta begins with the sizes of its base and of its
// result.
func (s *scanner) body(n uint64, delta bool) error {
	if s.z == nil {
		z, err := zlib.NewReader(s.in)
		if err != nil {
			return err
		}
		s.z = z
	} else if err := s.z.(zlib.Resetter).Reset(s.in, nil); err != nil {
		return err
	}
	begin := &bytes.Buffer{}
	if delta {
		if _, err := io.CopyN(begin, s.z, int64(min(n, 20))); err != nil {
			return fmt.Errorf("its content is shorter than %d bytes: %w", n, err)
		}
	}
	rest, err := io.CopyN(io.Discard, s.z, int64(n)-int64(begin.Len())+1)
	if !errors.Is(err, io.EOF) {
		if err == nil {
			err = fmt.Errorf("its content is longer than the %d bytes that it claims", n)
		}
		return err
	}
	if got := uint64(rest) + uint64(begin.Len()); got != n {
		return fmt.Errorf("its content has %d bytes, and it claims %d", got, n)
	}
	if !delta {
		return nil
	}
	if _, err := binary.ReadUvarint(begin); err != nil {
		return fmt.Errorf("it is not a delta: %w", err)
	}
	result, err := binary.ReadUvarint(begin)
	if err != nil {
		return fmt.Errorf("it is not a delta: %w", err)
	}
	if most := uint64(min(s.limits.UnpackedBytes, maxDelta)); result > most {
		return fmt.Errorf("it unpacks to %s, the limit is %s", size(int64(min(result, 1<<62))), size(int64(most)))
	}
	return nil
}
