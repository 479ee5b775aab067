package monitor

import (
	"fmt"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// folders hears from the system of changes in folders and wakes those whom they
// concern. Without listeners it has nothing open and no goroutine. Its zero value
// works.
type folders struct {
	change  sync.Mutex        // held by who joins or leaves; the goroutine of watcher never needs it
	watcher *fsnotify.Watcher // nil without listeners; guarded by change
	ended   chan struct{}     // closed when the goroutine of watcher is; guarded by change

	mu   sync.Mutex
	ears map[string]map[*ear]bool // by folder; guarded by mu
}

// ear is woken by changes of a file.
type ear struct {
	dir  string        // absolute, without links
	name string        // of the file in it; empty: any
	wake chan struct{} // capacity 1
}

func (e *ear) ring() {
	select {
	case e.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// join lets e be woken until leave is called.
func (f *folders) join(e *ear) (leave func(), err error) {
	f.change.Lock()
	defer f.change.Unlock()
	if f.watcher == nil {
		if err := f.open(); err != nil {
			return nil, fmt.Errorf("watch folder %s: %w", e.dir, err)
		}
	}
	f.mu.Lock()
	if f.ears == nil {
		f.ears = map[string]map[*ear]bool{}
	}
	if f.ears[e.dir] == nil {
		f.ears[e.dir] = map[*ear]bool{}
	}
	f.ears[e.dir][e] = true
	f.mu.Unlock()
	// Always: a folder that was taken away and made anew must be watched anew.
	if err := f.watcher.Add(e.dir); err != nil {
		f.drop(e)
		return nil, fmt.Errorf("watch folder %s: %w", e.dir, err)
	}
	return sync.OnceFunc(func() {
		f.change.Lock()
		defer f.change.Unlock()
		f.drop(e)
	}), nil
}

// open begins to listen. The caller holds change, as for drop.
func (f *folders) open() error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	f.watcher, f.ended = w, ended
	go func() { // ends when the last one leaves, who waits
		defer close(ended)
		f.listen(w)
	}()
	return nil
}

// drop forgets e, and ends all after the last listener.
func (f *folders) drop(e *ear) {
	f.mu.Lock()
	delete(f.ears[e.dir], e)
	last := len(f.ears[e.dir]) == 0
	if last {
		delete(f.ears, e.dir)
	}
	nobody := len(f.ears) == 0
	f.mu.Unlock()
	if last {
		_ = f.watcher.Remove(e.dir) // a folder that is gone is not watched any more
	}
	if nobody {
		_ = f.watcher.Close()
		<-f.ended
		f.watcher = nil
	}
}

func (f *folders) listen(w *fsnotify.Watcher) {
	for {
		select {
		case e, open := <-w.Events:
			if !open {
				return
			}
			f.wake(filepath.Dir(e.Name), filepath.Base(e.Name))
			f.wake(e.Name, "") // the folder itself
		case _, open := <-w.Errors:
			if !open {
				return
			}
			f.wake("", "") // something was missed
		}
	}
}

// wake wakes the listeners of a folder whom a name concerns: without a name all of
// them, without a folder the listeners of every folder.
func (f *folders) wake(dir, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at, ears := range f.ears {
		if dir != "" && at != dir {
			continue
		}
		for e := range ears {
			if name == "" || e.name == "" || e.name == name {
				e.ring()
			}
		}
	}
}
