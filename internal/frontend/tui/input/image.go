package input

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/platform/figures"
	"github.com/drover-dev/drover/internal/platform/picture"
)

// Image is an image of a prompt.
type Image struct {
	Name string
	Data []byte
}

// Draft is a prompt with its images, which its text names by their labels; see
// [picture.Label].
type Draft struct {
	Text   string
	Images []Image
}

// Typed is the text without the labels of its images.
func (d Draft) Typed() string {
	text := d.Text
	for i, m := range d.Images {
		label := picture.Label(i+1, m.Name)
		text = strings.ReplaceAll(strings.ReplaceAll(text, label+" ", ""), label, "")
	}
	return strings.TrimSpace(text)
}

// chip is a paste or an image, which one character of the text represents.
type chip struct {
	text  string // that was pasted
	image *Image // nil: it is a text
}

// add inserts a chip.
func (e Editor) add(c chip) Editor {
	r := string(firstChip + rune(len(e.chips)))
	e.chips = append(slices.Clone(e.chips), c)
	return e.insert(r)
}

func (e Editor) insert(text string) Editor {
	e.text = e.text[:e.at] + text + e.text[e.at:]
	e.at += len(text)
	return e
}

// imageChips are the chips of images in the text, each once, in their order.
func (e Editor) imageChips() (list []int) {
	for _, r := range e.text {
		n := int(r - firstChip)
		if n >= 0 && n < len(e.chips) && e.chips[n].image != nil && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// Images is how many images the text has.
func (e Editor) Images() int { return len(e.imageChips()) }

// name is how the text that is sent names the image of a chip; empty: it has none such.
func (e Editor) name(n int) string {
	at := slices.Index(e.imageChips(), n)
	if at < 0 {
		return ""
	}
	return picture.Label(at+1, e.chips[n].image.Name)
}

// imageLabel is how the chip of an image is shown.
func (e Editor) imageLabel(n int) string {
	m := e.chips[n].image
	at := slices.Index(e.imageChips(), n)
	return fmt.Sprintf("[Image %d: %s %s]", at+1, printable.Line(m.Name, 40), figures.Bytes(int64(len(m.Data))))
}

// Draft is the text with its images, to be sent.
func (e Editor) Draft() Draft {
	d := Draft{Text: strings.TrimSpace(e.Value())}
	for _, n := range e.imageChips() {
		d.Images = append(d.Images, *e.chips[n].image)
	}
	return d
}

// Put replaces the text by a draft and puts the cursor at its end.
func (e Editor) Put(d Draft) Editor {
	e = e.changed()
	e.text, e.at = "", 0
	return e.put(d)
}

// Append appends a draft to the text, in a line of its own.
func (e Editor) Append(d Draft) Editor {
	e = e.changed()
	e.at = len(e.text)
	return e.insert("\n").put(d)
}

func (e Editor) put(d Draft) Editor {
	rest, used := printable.Typed(d.Text), map[int]int{}
	for {
		first, at := -1, len(rest)
		for i, m := range d.Images {
			if k := strings.Index(rest, picture.Label(i+1, m.Name)); k >= 0 && k < at {
				first, at = i, k
			}
		}
		if part := rest[:at]; long(part) {
			e = e.add(chip{text: part})
		} else {
			e = e.insert(part)
		}
		if first < 0 {
			break
		}
		rest = rest[at+len(picture.Label(first+1, d.Images[first].Name)):]
		if n, ok := used[first]; ok {
			e = e.insert(string(firstChip + rune(n)))
			continue
		}
		used[first] = len(e.chips)
		e = e.add(chip{image: &d.Images[first]})
	}
	for i := range d.Images {
		if _, ok := used[i]; !ok {
			e = e.add(chip{image: &d.Images[i]})
		}
	}
	return e
}

// Attach inserts images at the cursor.
func (e Editor) Attach(list ...Image) (Editor, error) {
	if err := e.fits(list); err != nil {
		return e, err
	}
	return e.changed().attach(list), nil
}

// AttachFor puts images in the place of the last occurrence of a text, such as the paths of
// their files. Without one the editor stays as it is.
func (e Editor) AttachFor(text string, list ...Image) (Editor, error) {
	from := strings.LastIndex(e.text, text)
	if from < 0 || text == "" {
		return e, nil
	}
	if err := e.fits(list); err != nil {
		return e, err
	}
	e = e.changed()
	behind := e.at - from - len(text)
	e.text, e.at = e.text[:from]+e.text[from+len(text):], from
	length := len(e.text)
	e = e.attach(list)
	switch {
	case behind >= 0:
		e.at += behind
	case behind < -len(text): // the cursor stood before it
		e.at += behind + len(text) - (len(e.text) - length)
	}
	return e, nil
}

func (e Editor) attach(list []Image) Editor {
	for i := range list {
		if i > 0 {
			e = e.insert(" ")
		}
		e = e.add(chip{image: &list[i]})
	}
	e.history.place = -1
	return e
}

// fits reports why a prompt cannot have further images.
func (e Editor) fits(list []Image) error {
	chips, total := e.imageChips(), 0
	if n := len(chips) + len(list); n > picture.Max {
		return fmt.Errorf("a prompt has %d images at most, and this makes %d (send some of them first)", picture.Max, n)
	}
	for _, n := range chips {
		total += len(e.chips[n].image.Data)
	}
	for _, m := range list {
		total += len(m.Data)
	}
	if total > picture.MaxTotal {
		return fmt.Errorf("the images of a prompt have %d MiB together at most (send some of them first)", picture.MaxTotal>>20)
	}
	return nil
}
