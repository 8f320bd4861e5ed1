-- worker
if redis.call('EXISTS', prefix .. 'worker:' .. ARGV[4]) == 0 then
  return 0
end
remove_worker(ARGV[4])
save()
return 1
