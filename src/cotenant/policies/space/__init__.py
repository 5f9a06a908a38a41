"""Where there is room: free devices, room on shared ones, what is kept, and what becomes free when."""
