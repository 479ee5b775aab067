package tui

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// withImages are files of images. Reading one takes no time, since the harness gives up on
// commands that wait.
func withImages(o *Options) {
	big := make([]byte, 5<<20)
	o.Image = func(_ context.Context, path string) (control.Image, error) {
		name := path[strings.LastIndexByte(path, '/')+1:]
		switch {
		case strings.HasPrefix(name, "no"):
			return control.Image{}, fmt.Errorf("read image %s: %w", path, fs.ErrNotExist)
		case strings.HasPrefix(name, "bad"):
			return control.Image{}, fmt.Errorf("read image %s: its content is neither PNG, JPEG, GIF nor WebP", path)
		case strings.HasPrefix(name, "big"):
			return control.Image{Name: name, Data: big}, nil
		}
		return control.Image{Name: name, Data: make([]byte, 64_000)}, nil
	}
	o.Clipboard = func(context.Context) (control.Image, error) {
		return control.Image{Name: "clipboard.png", Data: make([]byte, 70)}, nil
	}
	o.Sees = func(model string) bool { return model != "deaf" }
}

func (u *user) paste(text string) { u.tell(tea.PasteMsg{Content: text}) }

// TestImagePaste: paths of images become images, and all other texts stay texts.
func TestImagePaste(t *testing.T) {
	for text, want := range map[string][]string{
		"/tmp/a.png":                     {"/tmp/a.png"},
		"a.JPG\n":                        {"a.JPG"},
		"'/tmp/my shot.png' ":            {"/tmp/my shot.png"},
		`/tmp/my\ shot\(1\).png`:         {"/tmp/my shot(1).png"},
		"/tmp/my shot.png":               {"/tmp/my shot.png"},
		"file:///tmp/my%20shot.webp":     {"/tmp/my shot.webp"},
		"/tmp/a.png /tmp/b.gif":          {"/tmp/a.png", "/tmp/b.gif"},
		"/tmp/a.png\r\nfile:///b.jpeg":   {"/tmp/a.png", "/b.jpeg"},
		"see /tmp/a.png":                 nil,
		"/tmp/a.txt":                     nil,
		"":                               nil,
		".png":                           nil,
		"https://example.com/a.png is a": nil,
		"it's /tmp/a.png":                nil,
	} {
		if got := pastedImages(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A path that is pasted or typed becomes an image, which the keys delete as one.
func TestImageChip(t *testing.T) {
	u := start(t, 80, 24, withImages)
	u.types("what is ")
	u.paste("'/tmp/a b.png' ")
	u.sees("> what is [Image 1: a b.png 62.5 KiB]")
	u.types(" and ./c.gif or other.png ")
	u.sees("what is [Image 1: a b.png 62.5 KiB] and [Image 2: c.gif 62.5 KiB] or")
	u.press("home", "alt+f", "alt+f", "alt+f", "backspace")
	u.sees("> what is  and [Image 1: c.gif 62.5 KiB] or other.png")
	u.press("ctrl+_")
	u.sees("what is [Image 1: a b.png 62.5 KiB] and [Image 2")
	u.press("backspace", "ctrl+v")
	u.sees("what is [Image 1: clipboard.png 70 B] and [Image 2: c.gif")
	u.press("enter")
	u.did("prompt what is [image 1: clipboard.png] and [image 2: c.gif] or other.png\nimage clipboard.png 70\nimage c.gif 64000")
	u.hear(begin("what is [image 1: clipboard.png] and [image 2: c.gif] or other.png"))
	u.sees("> what is [image 1: clipboard.png] and")
	u.press("up") // the history has text alone
	u.sees("> what is and or other.png")
}

// A path at the end of a prompt is read before the prompt is sent.
func TestImageAtEnd(t *testing.T) {
	u := start(t, 80, 24, withImages)
	u.types("look at /tmp/a.png")
	u.press("enter")
	u.did("prompt look at [image 1: a.png]\nimage a.png 64000")
	u.hear(begin("look at [image 1: a.png]"), end())
	u.types("/tmp/a.png")
	u.press("enter")
	u.did("prompt [image 1: a.png]\nimage a.png 64000")
	u.hear(begin("[image 1: a.png]"), end())
	u.types("write /tmp/none.png")
	u.press("enter")
	u.did("prompt write /tmp/none.png")
}

// What cannot be an image of the prompt is said, and the text stays.
func TestImageRefused(t *testing.T) {
	u := start(t, 100, 24, withImages)
	u.paste("/tmp/none.png")
	u.sees("> /tmp/none.png", "there is no file /tmp/none.png: it stays text")
	u.press("ctrl+u")
	u.types("see /tmp/bad.png")
	u.press("enter")
	u.did("")
	u.sees("> see /tmp/bad.png", "neither PNG, JPEG, GIF nor WebP")
	u.press("enter")
	u.did("prompt see /tmp/bad.png")
	u.hear(begin("see /tmp/bad.png"), end())
	for range 4 {
		u.paste("/tmp/big.png")
	}
	u.sees("[Image 4: big.png 5.0 MiB]")
	u.paste("/tmp/a.png")
	u.sees("/tmp/a.png", "the images of a prompt have 20 MiB together at most")
	u = start(t, 100, 24, withImages, func(o *Options) { o.Clipboard = nil })
	u.press("ctrl+v")
	u.sees("the clipboard cannot be reached from here")
	u = start(t, 100, 24, withImages, func(o *Options) {
		o.Clipboard = func(context.Context) (control.Image, error) { return control.Image{}, errors.New("no tool") }
	})
	u.press("ctrl+v")
	u.sees("no tool")
}

// A prompt that waits keeps its images: for the next turn, for the editor, and after it was
// refused.
func TestImageWaits(t *testing.T) {
	u := start(t, 80, 24, withImages)
	u.hear(begin("work"))
	u.paste("/tmp/a.png")
	u.press("enter")
	u.sees("queued: [image 1: a.png]")
	u.press("up")
	u.sees("> [Image 1: a.png 62.5 KiB]")
	u.press("enter")
	u.paste("/tmp/b.png")
	u.types(" too")
	u.press("enter", "esc")
	u.hear(end())
	u.sees("> [Image 1: a.png 62.5 KiB]", "  [Image 2: b.png 62.5 KiB] too")
	u.api.done()
	u.api.fail = errors.New("the session is full")
	u.press("enter")
	u.did("prompt [image 1: a.png]\n[image 2: b.png] too\nimage a.png 64000\nimage b.png 64000")
	u.sees("> [Image 1: a.png 62.5 KiB]", "  [Image 2: b.png 62.5 KiB] too", "the session is full")
}

// A prompt that was gone back to has its images again.
func TestImageFork(t *testing.T) {
	u := start(t, 80, 24, withImages, func(o *Options) {
		o.Switch = func(context.Context, task.ID) (Connection, error) { return Connection{}, errors.New("later") }
	})
	u.api.back = []control.Image{{Name: "a.png", Data: make([]byte, 1000)}}
	u.press("esc", "esc", "enter")
	u.sees("> first [Image 1: a.png 1000 B] thing")
}

// That the model sees no images is said before the prompt is sent.
func TestImageBlind(t *testing.T) {
	u := start(t, 80, 24, withImages)
	u.tell(news{epoch: u.m.epoch, state: &control.State{Settings: &control.Settings{Model: "deaf"}}})
	u.paste("/tmp/a.png")
	u.sees("model deaf does not see images: choose another with /model")
	u.press("enter")
	u.did("")
	u.press("backspace")
	u.pass(10 * time.Second)
	u.misses("does not see images")
}
