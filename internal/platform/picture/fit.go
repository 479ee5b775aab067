package picture

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
)

// maxPixels bounds the decoded pixels: a small file may claim to hold any number of them.
const maxPixels = 50 << 20

// Fit returns an image that a provider takes: of at most side pixels a side, and of at most
// limit bytes as base64; 0: any. It returns an image unchanged that fits, or whose size cannot
// be read: the provider decides then. The error says why an image cannot be made to fit.
func Fit(data []byte, mediaType string, side, limit int) ([]byte, string, error) {
	size, _ := Size(data, mediaType) // zero where it cannot be read
	small := limit == 0 || base64.StdEncoding.EncodedLen(len(data)) <= limit
	if small && (side == 0 || max(size.X, size.Y) <= side) {
		return data, mediaType, nil
	}
	if size.X*size.Y > maxPixels {
		return nil, "", fmt.Errorf("it has %d x %d pixels, which are too many to scale it", size.X, size.Y)
	}
	decode := map[string]func([]byte) (image.Image, error){
		"image/png":  func(b []byte) (image.Image, error) { return png.Decode(bytes.NewReader(b)) },
		"image/jpeg": func(b []byte) (image.Image, error) { return jpeg.Decode(bytes.NewReader(b)) },
		"image/gif":  func(b []byte) (image.Image, error) { return gif.Decode(bytes.NewReader(b)) },
	}[mediaType]
	if decode == nil {
		return nil, "", fmt.Errorf("it has %d bytes, and an image of type %s cannot be scaled", len(data), mediaType)
	}
	img, err := decode(data)
	if err != nil {
		return nil, "", fmt.Errorf("it cannot be decoded: %w", err)
	}
	longest := max(size.X, size.Y)
	if side > 0 {
		longest = min(longest, side)
	}
	for ; longest > 0; longest /= 2 {
		scaled := scale(img, longest)
		for _, as := range []string{mediaType, "image/jpeg"} {
			var out bytes.Buffer
			if as == "image/jpeg" {
				err = jpeg.Encode(&out, opaque(scaled), &jpeg.Options{Quality: 85})
			} else {
				as, err = "image/png", png.Encode(&out, scaled)
			}
			if err == nil && (limit == 0 || base64.StdEncoding.EncodedLen(out.Len()) <= limit) {
				return out.Bytes(), as, nil
			}
		}
	}
	return nil, "", errors.Join(err, errors.New("no smaller image of it fits"))
}

// Size returns the size of an image in pixels, from its header; zero for WebP.
func Size(data []byte, mediaType string) (image.Point, error) {
	var c image.Config
	var err error
	switch r := bytes.NewReader(data); mediaType {
	case "image/png":
		c, err = png.DecodeConfig(r)
	case "image/jpeg":
		c, err = jpeg.DecodeConfig(r)
	case "image/gif":
		c, err = gif.DecodeConfig(r)
	}
	if err != nil {
		return image.Point{}, fmt.Errorf("its size cannot be read: %w", err)
	}
	return image.Pt(c.Width, c.Height), nil
}

// scale returns the image with its longer side at most so long; each pixel is the mean of
// the pixels that it replaces. It works in strips: a picture of a camera is large when unpacked.
func scale(img image.Image, longest int) *image.NRGBA {
	from := img.Bounds()
	w, h := from.Dx(), from.Dy()
	if most := max(w, h); most > longest {
		w, h = max(1, w*longest/most), max(1, h*longest/most)
	}
	out := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		top, bottom := y*from.Dy()/h, max((y+1)*from.Dy()/h, y*from.Dy()/h+1)
		strip := image.NewRGBA(image.Rect(0, 0, from.Dx(), bottom-top))
		draw.Draw(strip, strip.Bounds(), img, from.Min.Add(image.Pt(0, top)), draw.Src)
		for x := range w {
			left, right := x*from.Dx()/w, max((x+1)*from.Dx()/w, x*from.Dx()/w+1)
			var sum [4]int
			for row := range bottom - top {
				at := strip.Pix[row*strip.Stride+4*left : row*strip.Stride+4*right]
				for i, v := range at {
					sum[i&3] += int(v)
				}
			}
			n := (bottom - top) * (right - left)
			out.Set(x, y, color.RGBA{uint8(sum[0] / n), uint8(sum[1] / n), uint8(sum[2] / n), uint8(sum[3] / n)})
		}
	}
	return out
}

// opaque puts an image on white: JPEG has no transparency.
func opaque(img image.Image) image.Image {
	out := image.NewRGBA(img.Bounds())
	draw.Draw(out, out.Bounds(), image.White, image.Point{}, draw.Src)
	draw.Draw(out, out.Bounds(), img, img.Bounds().Min, draw.Over)
	return out
}
