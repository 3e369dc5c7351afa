package link_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/pandovm/pando/internal/link"
)

// find feeds stream in chunks of the given sizes (the last one repeating) and
// returns the ends of all tokens found, counted from the stream's beginning.
func find(f *link.Finder, stream []byte, sizes []int) []int {
	var ends []int
	at := 0
	for i := 0; at < len(stream); i++ {
		n := min(len(stream)-at, sizes[min(i, len(sizes)-1)])
		chunk := stream[at : at+n]
		for {
			_, end := f.Find(chunk)
			if end < 0 {
				break
			}
			ends = append(ends, at+n-len(chunk)+end)
			chunk = chunk[end:]
		}
		at += n
	}
	return ends
}

// reference returns the ends of the tokens in stream, each search going on
// after the last match.
func reference(stream []byte, tokens ...link.Token) []int {
	var ends []int
	from := 0
	for i := from + link.TokenSize; i <= len(stream); i++ {
		for _, t := range tokens {
			if i-link.TokenSize >= from && bytes.Equal(stream[i-link.TokenSize:i], t[:]) {
				ends = append(ends, i)
				from = i
				break
			}
		}
	}
	return ends
}

// However the stream is cut, the finder finds what is there. The alphabet is
// small, so that beginnings of tokens are everywhere.
func TestFinderProperty(t *testing.T) {
	t.Parallel()
	letter := rapid.SampledFrom([]byte{'a', 'b'})
	rapid.Check(t, func(t *rapid.T) {
		var a, b link.Token
		copy(a[:], rapid.SliceOfN(letter, 16, 16).Draw(t, "a"))
		copy(b[:], rapid.SliceOfN(letter, 16, 16).Draw(t, "b"))
		var stream []byte
		for range rapid.IntRange(1, 6).Draw(t, "parts") {
			switch rapid.IntRange(0, 3).Draw(t, "part") {
			case 0:
				stream = append(stream, a[:]...)
			case 1:
				stream = append(stream, b[:rapid.IntRange(0, 16).Draw(t, "cut")]...)
			default:
				stream = append(stream, rapid.SliceOfN(letter, 0, 40).Draw(t, "noise")...)
			}
		}
		var f link.Finder
		f.Expect(a, b)
		got := find(&f, stream, rapid.SliceOfN(rapid.IntRange(1, 20), 1, 8).Draw(t, "sizes"))
		if want := reference(stream, a, b); !equal(got, want) {
			t.Fatalf("found tokens at %v, want %v, in %s", got, want, stream)
		}
	})
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestFinderPartial(t *testing.T) {
	t.Parallel()
	token := link.FreshToken()
	var f link.Finder
	f.Expect(token)
	for n := range link.TokenSize {
		f.Reset()
		f.Find(append([]byte("noise"), token[:n]...))
		if got := f.Partial(); got != n {
			t.Errorf("after %d bytes of the token Partial is %d", n, got)
		}
	}
}

// A token whose beginning passed before it was expected is found all the same.
func TestFinderExpectKeepsThePast(t *testing.T) {
	t.Parallel()
	a, b := link.NewToken(), link.NewToken()
	var f link.Finder
	f.Expect(a)
	f.Find(b[:5])
	f.Expect(b)
	if found, end := f.Find(b[5:]); found != b || end != 11 {
		t.Errorf("found %v at %d", found, end)
	}
	f.Expect(a)
	f.Find(a[:5])
	f.Reset()
	if _, end := f.Find(a[5:]); end >= 0 {
		t.Error("found a token across a reset")
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 1000, link.MaxBody} {
		want := bytes.Repeat([]byte{'x'}, size)
		message, err := link.AppendMessage(nil, link.Token{}, want)
		if err != nil {
			t.Fatal(err)
		}
		var b link.Body
		stream := append(message[link.TokenSize:], "rest"...)
		done := false
		for !done && len(stream) > 0 {
			n := max(1, min(b.Missing(), 7))
			var rest []byte
			if rest, done, err = b.Take(stream[:n]); err != nil || len(rest) > 0 {
				t.Fatalf("size %d: %v, %d bytes left over", size, err, len(rest))
			}
			stream = stream[n:]
		}
		if !bytes.Equal(b.Bytes(), want) || string(stream) != "rest" {
			t.Errorf("size %d: body of %d bytes, rest %q", size, len(b.Bytes()), stream)
		}
	}
}

func TestBodyRefusesWhatIsTooLongOrChanged(t *testing.T) {
	t.Parallel()
	if _, err := link.AppendMessage(nil, link.Token{}, make([]byte, link.MaxBody+1)); !errors.Is(err, link.ErrTooLong) {
		t.Errorf("writing too much: %v", err)
	}
	if _, _, err := new(link.Body).Take([]byte{0, 1, 0, 1, 0, 0, 0, 0}); !errors.Is(err, link.ErrTooLong) {
		t.Errorf("reading too much: %v", err)
	}
	message, _ := link.AppendMessage(nil, link.Token{}, []byte("abc"))
	message[len(message)-1] ^= 1
	if _, _, err := new(link.Body).Take(message[link.TokenSize:]); !errors.Is(err, link.ErrChecksum) {
		t.Errorf("reading changed bytes: %v", err)
	}
}

// FuzzMessage cuts arbitrary bytes, with and without a real message in them,
// into chunks and reads them as the host and the agent do.
func FuzzMessage(f *testing.F) {
	good, _ := link.AppendMessage([]byte("noise"), link.FreshToken(), []byte("body"))
	f.Add(good, uint8(3))
	f.Add(good[:len(good)-2], uint8(1))
	fresh := link.FreshToken()
	f.Add(append(fresh[:], 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0), uint8(200))
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		var finder link.Finder
		finder.Expect(link.FreshToken())
		var body *link.Body
		for len(stream) > 0 {
			chunk := stream[:min(len(stream), int(size)+1)]
			if _, end := finder.Find(chunk); end > 0 {
				body, stream = new(link.Body), stream[end:]
				continue
			}
			stream = stream[len(chunk):]
			if body == nil {
				continue
			}
			rest, done, err := body.Take(chunk)
			if len(rest) > len(chunk) || len(body.Bytes()) > link.MaxBody {
				t.Fatal("took more than there was, or is allowed")
			}
			if done || err != nil {
				body = nil
			}
		}
	})
}
