package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
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
	if err := fork(from, to, "", meta); err != nil {
		return fmt.Errorf("fork transcript %s to %s: %w", from, to, err)
	}
	return nil
}

// ErrNoPrompt says that a transcript has no such prompt.
var ErrNoPrompt = errors.New("the transcript has no such prompt")

// ForkTranscriptBefore is [ForkTranscript] of the conversation as it stood before a prompt of
// the user, which is named by its ID; see [Prompts]. It is [ErrNoPrompt] if there is none.
func ForkTranscriptBefore(from, to, prompt string, meta Meta) error {
	if prompt == "" {
		return fmt.Errorf("fork transcript %s: %w", from, ErrNoPrompt)
	}
	if err := fork(from, to, prompt, meta); err != nil {
		return fmt.Errorf("fork transcript %s to %s: %w", from, to, err)
	}
	return nil
}

// UserPrompt is a prompt in a transcript.
type UserPrompt struct {
	ID   string
	At   time.Time
	Text string // as the user has typed it
}

// Prompts are those that the user has written, oldest first, also those that a summary has
// taken the place of. It reads the whole file, takes no lock, and passes over lines that
// it cannot read.
func Prompts(path string) ([]UserPrompt, error) {
	f, err := openRead(path)
	if err != nil {
		return nil, fmt.Errorf("read transcript %s: %w", path, err)
	}
	defer f.Close()
	var all []UserPrompt
	err = entries(f, func(l line, m Message) error {
		if l.Prompt > 0 && m.raw != nil {
			all = append(all, UserPrompt{ID: l.UUID, At: time.UnixMilli(l.Timestamp), Text: l.promptText(m)})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read transcript %s: %w", path, err)
	}
	return all, nil
}

// PromptImages are the blocks that precede a prompt with images: its images, each behind the
// text that names it.
func PromptImages(path, id string) (list []Block, err error) {
	f, err := openRead(path)
	if err != nil {
		return nil, fmt.Errorf("read transcript %s: %w", path, err)
	}
	defer f.Close()
	err = entries(f, func(l line, m Message) error {
		if l.UUID != id || l.Prompt == 0 || m.raw == nil {
			return nil
		}
		blocks, err := m.Blocks()
		if err != nil {
			return fmt.Errorf("read prompt %s: %w", id, err)
		}
		for i, b := range blocks[:min(l.Prompt-1, len(blocks))] {
			if i > 0 && b.Type == "image" && blocks[i-1].Type == "text" {
				list = append(list, blocks[i-1], b)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read transcript %s: %w", path, err)
	}
	return list, nil
}

// promptText is the text of the prompt in a message.
func (l *line) promptText(m Message) string {
	if l.Typed != "" {
		return l.Typed
	}
	blocks, err := m.Blocks()
	if err != nil || l.Prompt > len(blocks) {
		return ""
	}
	var texts []string
	for _, b := range blocks[l.Prompt-1:] {
		if b.Type == "text" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// promptAt is where the line of a prompt begins.
func promptAt(f *os.File, size int64, id string) (at int64, err error) {
	r := newLineReader(io.NewSectionReader(f, 0, size))
	for {
		text, err := r.next()
		if errors.Is(err, io.EOF) {
			return 0, ErrNoPrompt
		}
		if err != nil {
			return 0, err
		}
		if l, m, ok := parseLine(text); ok && l.Prompt > 0 && m.raw != nil && l.UUID == id {
			return r.begin, nil
		}
	}
}

func fork(from, to, before string, meta Meta) error {
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
	err = copyConversation(out, in, before, meta)
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

func copyConversation(out io.Writer, in *os.File, before string, meta Meta) error {
	info, err := in.Stat()
	if err != nil {
		return err
	}
	end := info.Size()
	if _, err := readMeta(in, end); err != nil {
		return err
	}
	if before != "" {
		if end, err = promptAt(in, end, before); err != nil {
			return err
		}
	}
	begin, err := conversationAt(in, end)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 256<<10)
	head := meta.head()
	last := head.UUID
	if err := writeAll(w, encodeLine(head, nil)); err != nil {
		return err
	}
	err = entries(io.NewSectionReader(in, begin, end-begin), func(l line, m Message) error {
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
