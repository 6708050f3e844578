//! Programs that encode and decode pictures and sound with several threads.

use super::compare;

/// The bytes of `sample` are the pictures. The rate at which they are encoded is left out.
#[test]
fn x264() {
    compare(
        "x264",
        "x264 --quiet --no-progress --threads 3 --demuxer raw --input-res 160x120 --fps 25 \\
    -o out.264 sample 2>&1 | sed 's/, [0-9.]* fps//'
cksum < out.264",
    );
}

/// Each codec encodes and decodes with three threads, and so does a graph of filters. MJPEG and H.265 are not
/// among them: what their encoders write depends on the order of their threads.
#[test]
fn ffmpeg() {
    let line = r#"
ffmpeg="ffmpeg -nostdin -v error -y -threads 3"
exact="-flags +bitexact -fflags +bitexact"
$ffmpeg -f lavfi -i testsrc2=size=320x240:rate=25:duration=1 -f lavfi -i sine=duration=1 \
    -pix_fmt yuv420p -c:v rawvideo -c:a pcm_s16le $exact raw.nut
encode() {
    codec=$1
    shift
    $ffmpeg -i raw.nut -threads 3 -c:v $codec "$@" -c:a flac $exact $codec.mkv
    cksum $codec.mkv
    $ffmpeg -i $codec.mkv -f framemd5 - | cksum
}
encode libx264
encode libvpx-vp9 -deadline realtime -cpu-used 8 -row-mt 1 -tile-columns 1 -b:v 300k
encode mpeg4 -slices 3
encode ffv1 -level 3 -slices 4
$ffmpeg -i libx264.mkv -filter_complex_threads 3 \
    -filter_complex "[0:v]split[a][b];[a]scale=160:120[c];[b][c]overlay,hue=h=30" \
    -threads 3 -c:v libx264 -c:a aac $exact -f md5 -
"#;
    compare("ffmpeg", line);
}
