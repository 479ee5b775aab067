package memory

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/platform/home"
)

// Bounds of the board.
const (
	MaxEntries = 200
	MaxBoard   = 32 << 10 // bytes of the file
	MaxText    = 2000     // bytes of the text of an entry
	MaxTags    = 8
	maxTag     = 32 // bytes
	maxBy      = 80 // bytes

	// A larger file was not written here, and is not parsed.
	maxBoardFile = 1 << 20
)

const (
	boardName = "board.jsonl"
	boardLock = "board.lock" // locked, never read or written
	tornName  = "board.torn" // last lines that were cut off
	idLetters = "23456789abcdefghjkmnpqrstuvwxyz"
	idLength  = 6
)

// ErrNoEntry is returned for an entry that is not on the board.
var ErrNoEntry = errors.New("no such entry on the board")

// Entry is one note on the board.
type Entry struct {
	ID   string    `json:"id"`
	At   time.Time `json:"at"`
	By   string    `json:"by"` // who wrote it, for people
	Text string    `json:"text"`
	Tags []string  `json:"tags,omitempty"`
}

// Board is the content of the board, oldest entry first.
type Board struct {
	Entries  []Entry
	Bytes    int      // of the file
	Problems []string // lines that cannot be read; they stay where they are

	lines []line
	torn  []byte // a last line that was cut off
}

// line is one of the file. Those that cannot be read are kept as they are.
type line struct {
	raw []byte // without the newline
	id  string // empty: it cannot be read
}

// Board reads the board. A missing file is an empty board.
func (s *Store) Board() (Board, error) {
	root, err := s.open(false)
	if errors.Is(err, fs.ErrNotExist) {
		return Board{}, nil
	}
	if err != nil {
		return Board{}, fmt.Errorf("read the board: %w", err)
	}
	defer root.Close()
	b, err := readBoard(root)
	if err != nil {
		return b, fmt.Errorf("read the board: %w", err)
	}
	return b, nil
}

func readBoard(root *home.Folder) (Board, error) {
	data, info, err := root.Read(boardName, maxBoardFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Board{}, nil
	}
	if err == nil && info.Size() > maxBoardFile {
		err = fmt.Errorf("%s has %d bytes, and %d are read at most (take lines out of it)", boardName, info.Size(),
			maxBoardFile)
	}
	if err != nil {
		return Board{}, err
	}
	return parseBoard(data), nil
}

// parseBoard parses the file. A last line without a newline counts if its entry is
// whole.
func parseBoard(data []byte) Board {
	b := Board{Bytes: len(data)}
	for n := 1; len(data) > 0; n++ {
		raw, rest, ended := bytes.Cut(data, []byte("\n"))
		data = rest
		if len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		e, err := parseEntry(raw)
		switch {
		case err == nil:
			b.Entries = append(b.Entries, e)
			b.lines = append(b.lines, line{raw, e.ID})
		case !ended:
			b.torn = raw
			b.Problems = append(b.Problems,
				fmt.Sprintf("%s: line %d was cut off; the next change sets it aside in %s", boardName, n, tornName))
		default:
			b.lines = append(b.lines, line{raw: raw})
			b.Problems = append(b.Problems,
				fmt.Sprintf("%s: line %d cannot be read: %v (correct it, or take it out)", boardName, n, err))
		}
	}
	return b
}

func parseEntry(raw []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(raw, &e); err != nil {
		return e, errors.New("it is no JSON object of an entry")
	}
	if e.ID == "" || e.Text == "" {
		return e, errors.New("it has no id, or no text")
	}
	return e, nil
}

// encoded is the file.
func (b Board) encoded() []byte {
	var out bytes.Buffer
	for _, l := range b.lines {
		out.Write(l.raw)
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// Add puts a note on the board and returns when it is there. A board that is full
// refuses it, and says what could be taken off.
func (s *Store) Add(ctx context.Context, by, text string, tags ...string) (Entry, error) {
	e, err := newEntry(by, text, tags)
	if err == nil {
		err = s.change(ctx, true, func(b *Board) error { return b.add(e) })
	}
	if err != nil {
		return Entry{}, fmt.Errorf("add to the board: %w", err)
	}
	return e, nil
}

func newEntry(by, text string, tags []string) (Entry, error) {
	e := Entry{
		ID:   newID(),
		At:   time.Now().UTC().Round(time.Second),
		By:   strings.TrimSpace(by),
		Text: strings.TrimSpace(text),
	}
	for _, t := range tags {
		if t = strings.ToLower(strings.TrimSpace(t)); !slices.Contains(e.Tags, t) {
			e.Tags = append(e.Tags, t)
		}
	}
	switch {
	case e.Text == "":
		return e, errors.New("the text is empty")
	case !utf8.ValidString(e.Text) || strings.ContainsRune(e.Text, 0) || !utf8.ValidString(e.By):
		return e, errors.New("the text is not plain UTF-8")
	case len(e.Text) > MaxText:
		return e, fmt.Errorf("the text has %d bytes, and %d are possible: say it shorter", len(e.Text), MaxText)
	case len(e.By) > maxBy:
		return e, fmt.Errorf("the name of who writes has %d bytes, and %d are possible", len(e.By), maxBy)
	case len(e.Tags) > MaxTags:
		return e, fmt.Errorf("there are %d tags, and %d are possible", len(e.Tags), MaxTags)
	}
	for _, t := range e.Tags {
		if t == "" || len(t) > maxTag || strings.Trim(t, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			return e, fmt.Errorf("%.40q is no tag: a tag has letters, digits and - _ ., and %d of them at most", t, maxTag)
		}
	}
	return e, nil
}

// newID draws letters that are not taken for each other.
func newID() string {
	raw := make([]byte, idLength)
	_, _ = rand.Read(raw) // it never fails
	for i, b := range raw {
		raw[i] = idLetters[int(b)%len(idLetters)]
	}
	return string(raw)
}

func (b *Board) add(e Entry) error {
	if slices.ContainsFunc(b.lines, func(l line) bool { return l.id == e.ID }) {
		return errors.New("its ID is taken: try again")
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	size := len(b.encoded()) + len(raw) + 1
	if len(b.lines) >= MaxEntries || size > MaxBoard {
		return fmt.Errorf(
			"the board is full: with this it would have %d entries (%d are possible) and %d bytes (%d are possible); prune what is out of date first, such as the oldest: %s",
			len(b.lines)+1,
			MaxEntries,
			size,
			MaxBoard,
			strings.Join(b.oldest(), ", "),
		)
	}
	b.lines = append(b.lines, line{raw, e.ID})
	return nil
}

// oldest names a few entries that have been there longest.
func (b *Board) oldest() []string {
	var ids []string
	for _, l := range b.lines {
		if l.id != "" && len(ids) < 5 {
			ids = append(ids, l.id)
		}
	}
	return ids
}

// Prune takes notes off the board, all of them or none, and returns them.
func (s *Store) Prune(ctx context.Context, ids ...string) (gone []Entry, err error) {
	err = s.change(ctx, false, func(b *Board) error {
		for _, id := range ids {
			i := slices.IndexFunc(b.Entries, func(e Entry) bool { return e.ID == id })
			if i < 0 {
				return fmt.Errorf("%.40q: %w", id, ErrNoEntry)
			}
			gone = append(gone, b.Entries[i])
		}
		b.lines = slices.DeleteFunc(b.lines, func(l line) bool { return l.id != "" && slices.Contains(ids, l.id) })
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNoEntry
	}
	if err != nil {
		return nil, fmt.Errorf("prune the board: %w", err)
	}
	return gone, nil
}

// change reads the board, changes it and writes it, under the lock.
func (s *Store) change(ctx context.Context, create bool, do func(*Board) error) error {
	root, err := s.open(create)
	if err != nil {
		return err
	}
	defer root.Close()
	unlock, err := root.Lock(ctx, boardLock, patience)
	if err != nil {
		return err
	}
	defer unlock()
	b, err := readBoard(root)
	if err != nil {
		return err
	}
	if err := do(&b); err != nil {
		return err
	}
	if err := setAside(root, b.torn); err != nil {
		return err
	}
	return root.Write(boardName, b.encoded(), true, time.Time{})
}

// setAside keeps a last line that was cut off. It is kept before the board is
// written without it: a crash between the two keeps it twice.
func setAside(root *home.Folder, torn []byte) error {
	if len(torn) == 0 {
		return nil
	}
	f, _, err := root.OpenFile(tornName, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return fmt.Errorf("set a line aside that was cut off: %w", err)
	}
	_, err = f.Write(append(bytes.Clone(torn), '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("set a line aside that was cut off: %w", err)
	}
	return nil
}
