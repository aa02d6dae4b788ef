"""Decision models behind ``/v1/systemone`` as judges (``systemone:URL``)."""
