package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// ForkTranscript makes a new transcript that goes on from where the one at from
// stands now: a copy of its conversation, from the last compaction on, under the
// identity of meta. The copy knows its origin and has the same totals. It holds no
// mail messages as told: their numbers are those of the old session's mail, and the new
// session's mail has the same numbers. The old file is only read, and may be in use; a line
// that is being written is left out, as are lines that cannot be read and fields
// that this program does not know.
//
// The new file appears whole or not at all. One that is there already is an
// error that wraps [os.ErrExist].
func ForkTranscript(from, to string, meta Meta) error {
	if err := fork(from, to, meta); err != nil {
		return fmt.Errorf("fork transcript %s to %s: %w", from, to, err)
	}
	return nil
}

func fork(from, to string, meta Meta) error {
	if meta.ForkedFrom == "" {
		meta.ForkedFrom = from
	}
	in, err := openRead(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	err = copyConversation(out, in, meta)
	if err == nil && meta.Sync {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = put(out.Name(), to)
	}
	if gone := os.Remove(out.Name()); !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	if err == nil && meta.Sync {
		err = syncDir(filepath.Dir(to))
	}
	return err
}

// put gives a file its name, which nobody may have. A rename would replace what has
// come there meanwhile; where the file system knows no second names there is nothing else.
func put(file, to string) error {
	err := os.Link(file, to)
	if !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, os.ErrPermission) {
		return err
	}
	switch _, err := os.Lstat(to); {
	case err == nil:
		return os.ErrExist
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	return os.Rename(file, to)
}

func copyConversation(out io.Writer, in *os.File, meta Meta) error {
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if _, err := readMeta(in, info.Size()); err != nil {
		return err
	}
	begin, err := conversationAt(in, info.Size())
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 256<<10)
	head := meta.head()
	last := head.UUID
	if err := writeAll(w, encodeLine(head, nil)); err != nil {
		return err
	}
	err = entries(io.NewSectionReader(in, begin, info.Size()-begin), func(l line, m Message) error {
		if l.Format > 0 {
			return nil
		}
		me := meta.newLine(l.EntryType)
		l.UUID, l.ParentUUID, last = me.UUID, last, me.UUID
		l.IsSidechain, l.AgentName, l.AgentID, l.SessionID = me.IsSidechain, me.AgentName, me.AgentID, me.SessionID
		l.Mail = nil
		return writeAll(w, encodeLine(l, m.raw))
	})
	return errors.Join(err, w.Flush())
}
