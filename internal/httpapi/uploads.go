package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"strconv"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/file"
)

func (s *server) uploadRoutes() []route {
	const one = fsPath + "uploads/{sub}"
	return []route{
		handle(Operation{
			Method: "POST", Path: fsPath + "uploads", ID: "createUpload", Status: 200, Summary: "Begin an upload in parts.",
			Description: "What arrives is kept in the guest beside its target until it is committed, at most an hour after the last use. " +
				"A fork's child has its own copy of the uploads under way.",
			Errors: fileErrors(api.CodeBadRequest),
		}, s.createUpload),
		handleRaw(Operation{
			Method: "PUT", Path: one, ID: "writeUpload", Status: 200, Takes: octets, Response: reflect.TypeFor[api.Upload](),
			Summary: "Add a chunk to an upload.",
			Description: "It counts as a whole or not at all, and is at most 256 MiB long. " +
				"One that was received already is confirmed without being written again.",
			Query:  []Parameter{{Name: "offset", Type: "string", Description: "Where the chunk begins: the upload's receivedBytes."}},
			Errors: fileErrors(api.CodePayloadTooLarge),
		}, s.writeUpload),
		handle(Operation{
			Method: "GET", Path: one, ID: "getUpload", Status: 200, Summary: "Say how far an upload is.", Errors: fileErrors(),
		}, s.getUpload),
		handle(Operation{
			Method: "DELETE", Path: one, ID: "deleteUpload", Status: 204, Summary: "End an upload without its file.", Errors: fileErrors(),
		}, s.deleteUpload),
		handle(Operation{
			Method: "POST", Path: one + "/commit", ID: "commitUpload", Status: 204, Summary: "Put a complete upload in the place of its file.",
			Description: "If it fails the upload remains.", Errors: fileErrors(),
		}, s.commitUpload),
	}
}

func (s *server) createUpload(ctx context.Context, c call[api.CreateUploadRequest]) (api.Upload, error) {
	b := c.body
	mode, err := modeOf(b.Mode)
	if err != nil {
		return api.Upload{}, err
	}
	u, err := s.files.OpenUpload(ctx, c.ref, file.Write{
		Path: b.Path, Mode: mode, Owner: b.Owner, Group: b.Group, Size: b.Size, SHA256: b.SHA256,
	})
	return viewUpload(u), err
}

func viewUpload(u file.Upload) api.Upload {
	return api.Upload{UploadID: u.ID, Path: utf8Text(u.Path), Size: u.Size, ReceivedBytes: u.Received}
}

func (s *server) writeUpload(w http.ResponseWriter, r *http.Request, in call[none]) error {
	offset, err := strconv.ParseInt(in.query["offset"], 10, 64)
	if err != nil || offset < 0 {
		return fault.BadField("offset", "%q is not a whole number of at least 0", clip(in.query["offset"])).Hint("send the upload's receivedBytes")
	}
	body := newPatientReader(w, r.Body)
	defer body.release()
	u, err := s.files.WriteUpload(r.Context(), in.ref, in.sub, offset, r.ContentLength, body)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, viewUpload(u))
}

func (s *server) getUpload(ctx context.Context, c call[none]) (api.Upload, error) {
	u, err := s.files.Upload(ctx, c.ref, c.sub)
	return viewUpload(u), err
}

func (s *server) deleteUpload(ctx context.Context, c call[none]) (none, error) {
	return none{}, s.files.AbortUpload(ctx, c.ref, c.sub)
}

func (s *server) commitUpload(ctx context.Context, c call[none]) (none, error) {
	return none{}, s.files.CommitUpload(ctx, c.ref, c.sub)
}
