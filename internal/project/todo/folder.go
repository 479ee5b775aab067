package todo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/home"
)

const (
	lockName = "lock" // locked, never read or written
	markName = "last" // the highest number that was ever given

	// How long a change waits for others before it gives up.
	patience = 10 * time.Second
)

// folder is the folder of a list while this process has its lock, so no other process
// changes it. Its methods make the names, which hold no slash, and follow no link.
type folder struct {
	dir    *home.Folder
	unlock func()
	power  bool
}

// open takes the lock. It waits for others until ctx ends, at most for
// [patience]. Without create a folder that is not there is [fs.ErrNotExist].
func open(ctx context.Context, path string, create, power bool) (*folder, error) {
	dir, err := home.OpenFolder(path, create)
	if err != nil {
		return nil, err
	}
	unlock, err := dir.Lock(ctx, lockName, patience)
	if err != nil {
		dir.Close()
		return nil, err
	}
	return &folder{dir, unlock, power}, nil
}

func (f *folder) close() {
	f.unlock()
	f.dir.Close()
}

// read returns a whole file of a bounded size.
func (f *folder) read(name string) ([]byte, error) {
	data, _, err := f.dir.Read(name, maxFile+1)
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	return data, err
}

func (f *folder) write(name string, data []byte) error {
	return f.dir.Write(name, data, f.power, time.Time{})
}

func (f *folder) remove(name string) error {
	err := f.dir.Remove(name)
	if err == nil && f.power {
		err = f.dir.Sync()
	}
	return err
}

// file is the name of a to-do's.
func file(id ID) string { return strconv.Itoa(int(id)) + ".json" }

// parseFile reads such a name. Ours tells whether it is meant to be one.
func parseFile(name string) (id ID, ours bool, err error) {
	stem, ours := strings.CutSuffix(name, ".json")
	if !ours || strings.HasPrefix(name, ".") {
		return 0, false, nil
	}
	if strings.HasPrefix(stem, "#") {
		return 0, true, errors.New("its name is not a number")
	}
	if id, err = ParseID(stem); err != nil {
		return 0, true, errors.New("its name is not a number")
	}
	return id, true, nil
}

func (f *folder) has(id ID) bool {
	_, err := f.dir.Lstat(file(id))
	return err == nil
}

func (f *folder) item(id ID) (Item, error) {
	data, err := f.read(file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return Item{}, fmt.Errorf("to-do %s: %w", id, ErrNotFound)
	}
	var it Item
	if err == nil {
		it, err = decode(id, data)
	}
	if err != nil {
		return Item{}, &damaged{id, err}
	}
	return it, nil
}

func (f *folder) put(it Item) error {
	if it.version > version {
		return fmt.Errorf("to-do %s was written by a newer Drover (use that one to change it)", it.ID)
	}
	data, err := it.encode()
	if err != nil {
		return err
	}
	return f.write(file(it.ID), data)
}

// load reads the whole list.
func (f *folder) load() (List, error) {
	names, err := f.dir.Names()
	if err != nil {
		return List{}, err
	}
	var l List
	for _, name := range names {
		id, ours, err := parseFile(name)
		if !ours {
			continue
		}
		var it Item
		if err == nil {
			it, err = f.item(id)
		}
		if err != nil {
			if d, ok := errors.AsType[*damaged](err); ok {
				err = d.err
			}
			l.Problems = append(l.Problems, Problem{ID: id, File: name, Why: err.Error()})
			continue
		}
		l.Items = append(l.Items, it)
	}
	l.settle()
	return l, nil
}

// mark is the highest number that was ever given. Without the file it is the
// highest that is there: such a folder was put together by hand.
func (f *folder) mark() (ID, error) {
	data, err := f.read(markName)
	if err == nil {
		id, err := ParseID(string(bytes.TrimSpace(data)))
		if err != nil {
			return 0, fmt.Errorf("%s/%s does not hold the last number that was given (write it there)", f.dir.File().Name(), markName)
		}
		return id, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	names, err := f.dir.Names()
	if err != nil {
		return 0, err
	}
	var last ID
	for _, name := range names {
		if id, _, err := parseFile(name); err == nil {
			last = max(last, id)
		}
	}
	return last, nil
}

func (f *folder) setMark(id ID) error {
	return f.write(markName, []byte(strconv.Itoa(int(id))+"\n"))
}

// full refuses one more to-do. There are never more of them than numbers that
// were given, so most lists need not be counted.
func (f *folder) full(last ID) error {
	if last < MaxItems {
		return nil
	}
	names, err := f.dir.Names()
	if err != nil {
		return err
	}
	n := 0
	for _, name := range names {
		if _, ours, _ := parseFile(name); ours {
			n++
		}
	}
	if n >= MaxItems {
		return fmt.Errorf("the list has %d to-dos, as many as a list can hold (delete some)", n)
	}
	return nil
}
