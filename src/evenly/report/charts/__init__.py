"""Charts of a comparison. Every chart takes its container's width and stands alone when saved."""
