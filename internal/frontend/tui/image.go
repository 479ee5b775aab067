package tui

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/input"
	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/platform/picture"
)

// attaching is what becomes of paths of images in the prompt.
type attaching struct {
	reading int             // files that are being read
	submit  bool            // the prompt is to be sent when they were read
	looked  map[string]bool // words of this prompt that were tried as paths: none is tried twice
}

// imageExtensions are the endings of files that are taken for images; their content decides.
func imageExtensions() []string { return []string{".png", ".jpg", ".jpeg", ".gif", ".webp"} }

func namesImage(path string) bool {
	for _, e := range imageExtensions() {
		if len(path) > len(e) && strings.EqualFold(path[len(path)-len(e):], e) {
			return true
		}
	}
	return false
}

// unquoted returns the path that a word names.
func unquoted(word string) string {
	switch {
	case len(word) > 1 && (word[0] == '\'' || word[0] == '"'):
		word = word[1 : len(word)-1]
	default:
		word = regexp.MustCompile(`\\(.)`).ReplaceAllString(word, "$1")
	}
	if u, err := url.Parse(word); err == nil && u.Scheme == "file" && (u.Host == "" || u.Host == "localhost") {
		return u.Path
	}
	return word
}

// pastedImages are the paths of images that a text that was pasted consists of; none, if it
// has anything else.
func pastedImages(text string) (paths []string) {
	text = strings.TrimSpace(text)
	if len(text) > picture.Max*4096 {
		return nil
	}
	// A word may be quoted or have escaped characters.
	words := regexp.MustCompile(`'[^'\n]*'|"[^"\n]*"|(?:\\.|[^\s'"\\])+`)
	for _, w := range words.FindAllString(text, picture.Max+1) {
		path := unquoted(w)
		if !namesImage(path) {
			paths = nil
			break
		}
		paths = append(paths, path)
	}
	if left := words.ReplaceAllString(text, ""); len(paths) > 0 && strings.TrimSpace(left) == "" {
		return paths
	}
	if namesImage(text) && !strings.Contains(text, "\n") && (filepath.IsAbs(text) || strings.HasPrefix(text, "~/")) {
		return []string{text} // with blanks, as some terminals paste it
	}
	return nil
}

// typedImage is the path of an image that a text ends with, as it is written there. A name
// without a folder is a word like others.
func typedImage(text string) (word, path string, ok bool) {
	lastWord := regexp.MustCompile(`(?:^|\s)('[^'\n]+'|"[^"\n]+"|(?:\\.|[^\s'"\\])+)$`)
	at := lastWord.FindStringSubmatch(text)
	if at == nil {
		return "", "", false
	}
	word, path = at[1], unquoted(at[1])
	folder := strings.HasPrefix(path, "~/") || strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../")
	return word, path, namesImage(path) && (folder || filepath.IsAbs(path))
}

// pasteImages puts paths that were pasted into the prompt, and reads their images; ok is
// false for all other texts.
func (m *Model) pasteImages(text string) (cmd tea.Cmd, ok bool) {
	paths := pastedImages(text)
	if len(paths) == 0 || m.o.Image == nil {
		return nil, false
	}
	text = strings.TrimSpace(printable.Typed(text))
	m.editor = m.editor.Insert(text)
	return m.readImages(text, true, paths...), true
}

// lookAtWord reads the image whose path ends before the cursor. In a /command, words are
// words.
func (m *Model) lookAtWord() tea.Cmd {
	before := strings.TrimRight(m.editor.Before(), " \n")
	word, path, ok := typedImage(before)
	if !ok || m.o.Image == nil || m.attach.looked[word] {
		return nil
	}
	if first, _, more := strings.Cut(before, " "); more && isCommand(first) {
		return nil
	}
	return m.readImages(word, false, path)
}

// isCommand reports whether the first word of a prompt is a /command, and not a path.
func isCommand(word string) bool {
	return strings.HasPrefix(word, "/") && !strings.Contains(word[1:], "/")
}

func (m *Model) readImages(text string, pasted bool, paths ...string) tea.Cmd {
	if m.attach.looked == nil {
		m.attach.looked = map[string]bool{}
	}
	m.attach.looked[text] = true
	image := m.o.Image
	return m.readAttached(text, pasted, func(ctx context.Context) ([]control.Image, error) {
		var list []control.Image
		for _, path := range paths {
			one, err := image(ctx, path)
			if err != nil {
				return nil, err
			}
			list = append(list, one)
		}
		return list, nil
	})
}

// readClipboard reads an image from the clipboard.
func (m *Model) readClipboard() tea.Cmd {
	clipboard := m.o.Clipboard
	if clipboard == nil {
		m.say("no image was read: the clipboard cannot be reached from here (paste the path of a file)")
		return nil
	}
	return m.readAttached("", false, func(ctx context.Context) ([]control.Image, error) {
		image, err := clipboard(ctx)
		return []control.Image{image}, err
	})
}

// readAttached reads images for a text in the editor; from the clipboard, if the text is empty.
func (m *Model) readAttached(text string, pasted bool, from func(context.Context) ([]control.Image, error)) tea.Cmd {
	m.attach.reading++
	return read(m, from, func(list []control.Image, err error) tea.Cmd { return m.attached(text, pasted, list, err) })
}

// attached replaces words of the text by the images that were read.
func (m *Model) attached(text string, pasted bool, images []control.Image, err error) tea.Cmd {
	a := &m.attach
	a.reading--
	if err == nil {
		list := make([]input.Image, len(images))
		for i, image := range images {
			list[i] = input.Image{Name: printable.Typed(printable.Line(image.Name, 80)), Data: image.Data}
		}
		if text == "" {
			m.editor, err = m.editor.Attach(list...)
		} else {
			m.editor, err = m.editor.AttachFor(text, list...)
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist) && text != "":
		if pasted {
			m.say(fmt.Sprintf("there is no file %s: it stays text", printable.Line(text, 200)))
		}
	default:
		a.submit = false
		m.say(errorText(err))
	}
	if a.reading > 0 || !a.submit {
		return nil
	}
	a.submit = false
	return m.submit()
}

// blind says that the model does not see the images of the prompt; empty: it does, as far as
// is known.
func (m *Model) blind() string {
	model := m.settings().Model
	if m.o.Sees == nil || model == "" || m.editor.Images() == 0 || m.o.Sees(model) {
		return ""
	}
	return fmt.Sprintf("model %s does not see images: choose another with /model, or delete them",
		printable.Line(model, 60))
}

// promptOf is a draft as the session takes it.
func promptOf(d input.Draft) control.PromptRequest {
	req := control.PromptRequest{Text: d.Text}
	for _, i := range d.Images {
		req.Images = append(req.Images, control.Image{Name: i.Name, Data: i.Data})
	}
	return req
}

// draftOf is a prompt of before with its images.
func draftOf(text string, images []control.Image) input.Draft {
	d := input.Draft{Text: text}
	for _, i := range images {
		d.Images = append(d.Images, input.Image{Name: i.Name, Data: i.Data})
	}
	return d
}
