package picture

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"testing"
)

// drawn is an image whose left half is red; noise makes it large when it is packed.
func drawn(w, h int, noise bool) *image.NRGBA {
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	r := rand.New(rand.NewPCG(1, 2))
	for y := range h {
		for x := range w {
			c := color.NRGBA{0, 0, 255, 255}
			if x < w/2 {
				c = color.NRGBA{255, 0, 0, 255}
			}
			if noise {
				c = color.NRGBA{uint8(r.Uint32()), uint8(r.Uint32()), uint8(r.Uint32()), 255}
			}
			img.SetNRGBA(x, y, c)
		}
	}
	return img
}

func packed(t *testing.T, img image.Image, mediaType string) []byte {
	t.Helper()
	var out bytes.Buffer
	var err error
	switch mediaType {
	case "image/png":
		err = png.Encode(&out, img)
	case "image/jpeg":
		err = jpeg.Encode(&out, img, nil)
	case "image/gif":
		err = gif.Encode(&out, img, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestFit(t *testing.T) {
	for _, kind := range []string{"image/png", "image/jpeg", "image/gif"} {
		data := packed(t, drawn(3000, 30, false), kind)
		got, as, err := Fit(data, kind, 2000, 1<<20)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if told, _ := Type(got); told != as {
			t.Errorf("%s became %s and is said to be %s", kind, told, as)
		}
		img, _, err := image.Decode(bytes.NewReader(got))
		if err != nil || img.Bounds().Dx() != 2000 || img.Bounds().Dy() != 20 {
			t.Fatalf("%s: %v of 2000 x 20, %v", kind, img.Bounds(), err)
		}
		if r, _, b, _ := img.At(10, 10).RGBA(); r < 0xf000 || b > 0x1000 {
			t.Errorf("%s: the left half is no longer red", kind)
		}
		if r, _, b, _ := img.At(1990, 10).RGBA(); b < 0xf000 || r > 0x1000 {
			t.Errorf("%s: the right half is no longer blue", kind)
		}
	}

	large := packed(t, drawn(600, 600, true), "image/png")
	got, as, err := Fit(large, "image/png", 2000, 700_000)
	if err != nil || as != "image/jpeg" || len(got)*4/3 > 700_000 {
		t.Errorf("an image of too many bytes became %d bytes of %s, %v", len(got), as, err)
	}
	if size, err := Size(got, as); err != nil || size != image.Pt(600, 600) {
		t.Errorf("it has %v, %v; a better packing would have been enough", size, err)
	}

	fits := packed(t, drawn(20, 20, false), "image/png")
	if got, _, err := Fit(fits, "image/png", 2000, 1<<20); err != nil || !bytes.Equal(got, fits) {
		t.Errorf("an image that fits was changed: %v", err)
	}
	for name, data := range map[string][]byte{
		"cut":   packed(t, drawn(3000, 30, true), "image/png")[:2000],
		"bomb":  bombed(fits),
		"large": append([]byte("\x89PNG\r\n\x1a\nnothing"), make([]byte, 2000)...),
	} {
		if got, _, err := Fit(data, "image/png", 2000, 2000); err == nil {
			t.Errorf("%s: %d bytes were made of it", name, len(got))
		}
	}
}

// bombed claims to have 60,000 pixels a side.
func bombed(data []byte) []byte {
	out := bytes.Clone(data)
	copy(out[16:], []byte{0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60})
	copy(out[29:], crc(out[12:29]))
	return out
}

func crc(b []byte) []byte { return binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(b)) }
